package plan

import (
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// traits is what the labels of a node mean to the jobs of a decision: one byte for each set of labels that some job asks for, '1' where the node has
// them all. Nodes of equal traits are alike for every job. It is empty where no job asks for labels.
type traits string

// grant says whether a node has what is asked for in one place; nowhere asks for nothing.
func (t traits) grant(wish int) bool { return wish == nowhere || t[wish] == '1' }

// suits says whether a job may have devices of so much memory on nodes of such traits.
func (c *candidate) suits(memory int64, of traits) bool {
	return c.fitsMemory(memory) && of.grant(c.wish)
}

// readLabels finds the sets of labels that jobs ask for and which nodes have them. An attempt stays on a node that loses them, as a pod does.
func (b *board) readLabels(nodes []train.Node) {
	asked := map[string]map[string]string{}
	for _, c := range b.jobs {
		if len(c.Spec.NodeLabels) > 0 {
			asked[train.JoinLabels(c.Spec.NodeLabels)] = c.Spec.NodeLabels
		}
	}
	if len(asked) == 0 {
		return
	}
	wishes := slices.Sorted(maps.Keys(asked))
	for _, c := range b.jobs {
		if len(c.Spec.NodeLabels) > 0 {
			c.wish, _ = slices.BinarySearch(wishes, train.JoinLabels(c.Spec.NodeLabels))
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

// labelled is the reason of a job that no node has the labels for; false where one has.
func (b *board) labelled(c *candidate) (train.Reason, bool) {
	for i := range b.nodes {
		if b.nodes[i].traits.grant(c.wish) {
			return train.Reason{}, false
		}
	}
	return train.Reason{
		Code: ReasonNoNode, Message: "no node that is alive has the labels " + train.JoinLabels(c.Spec.NodeLabels),
		Hint: "label a node, or leave node_labels out",
	}, true
}

// withLabels says in words which nodes a job asks for.
func withLabels(c *candidate) string {
	if c.wish == nowhere {
		return ""
	}
	return " with the labels " + train.JoinLabels(c.Spec.NodeLabels)
}
