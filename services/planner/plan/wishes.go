package plan

import (
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// traits is what a node means to the jobs of a decision: one byte for each thing that some job asks of its nodes, '1' where the node suits that. Nodes of
// equal traits are alike for every job. It is empty where no job asks for anything.
type traits string

// grant says whether a node has what is asked for in one place; nowhere asks for nothing.
func (t traits) grant(wish int) bool { return wish == nowhere || t[wish] == '1' }

// suits says whether a job may have devices of so much memory on nodes of such traits.
func (c *candidate) suits(memory int64, of traits) bool {
	return c.fitsMemory(memory) && of.grant(c.wish)
}

// readWishes finds what jobs ask of their nodes and which nodes suit that. An attempt stays on a node that does no longer, as a pod does.
func (b *board) readWishes(nodes []train.Node) {
	asked := map[string]map[string]string{}
	for _, c := range b.jobs {
		if words := wished(c); words != "" {
			asked[words] = c.Spec.NodeLabels
		}
	}
	if len(asked) == 0 {
		return
	}
	wishes := slices.Sorted(maps.Keys(asked))
	for _, c := range b.jobs {
		if words := wished(c); words != "" {
			c.wish, _ = slices.BinarySearch(wishes, words)
		}
	}
	byID := make(map[train.NodeID]traits, len(nodes))
	for i := range nodes {
		has := make([]byte, len(wishes))
		for k, wish := range wishes {
			has[k] = '0'
			if nodes[i].Has(asked[wish]) {
				has[k] = '1'
			}
		}
		byID[nodes[i].ID] = traits(has)
	}
	for i := range b.nodes {
		b.nodes[i].traits = byID[b.nodes[i].id]
	}
}

// unsuited is the reason of a job that no node suits; false where one does.
func (b *board) unsuited(c *candidate) (train.Reason, bool) {
	for i := range b.nodes {
		if b.nodes[i].traits.grant(c.wish) {
			return train.Reason{}, false
		}
	}
	return train.Reason{
		Code: ReasonNoNode, Message: "no node that is alive has the labels " + train.JoinLabels(c.Spec.NodeLabels), Hint: "label a node, or leave node_labels out",
	}, true
}

// wished says in words which nodes a job asks for, and so tells wishes apart; empty where any will do.
func wished(c *candidate) string {
	if len(c.Spec.NodeLabels) == 0 {
		return ""
	}
	return " with the labels " + train.JoinLabels(c.Spec.NodeLabels)
}
