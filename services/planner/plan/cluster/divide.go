package cluster

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// likeness is what devices have in common that all suit a job or all do not.
type likeness struct {
	kind   train.DeviceKind
	model  string
	memory unit.Bytes
}

func likenessOf(d train.Device) likeness { return likeness{d.ID.Kind(), d.Model, d.Memory} }

// divide replaces nodes of unlike devices by nodes of like ones, where some job wants only a part of them. A job that
// needs more devices than there are alike needs the node whole: of such jobs and those that want a part, the first in
// the queue decides.
func divide(nodes []Node, jobs []state.Job) []Node {
	if !slices.ContainsFunc(nodes, Node.unlike) {
		return nodes
	}
	queue := make([]*state.Job, len(jobs))
	largest := 0
	for i := range jobs {
		queue[i] = &jobs[i]
	}
	slices.SortFunc(queue, func(x, y *state.Job) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), x.SubmittedAt.Compare(y.SubmittedAt), cmp.Compare(x.ID, y.ID))
	})
	for i := range nodes {
		for _, part := range nodes[i].parts() {
			largest = max(largest, len(part.Devices))
		}
	}
	divided := make([]Node, 0, len(nodes)+1)
	for _, n := range nodes {
		if n.unlike() && n.wantedInParts(queue, largest) {
			divided = append(divided, n.parts()...)
		} else {
			divided = append(divided, n)
		}
	}
	return divided
}

// wantedInParts says whether a job that wants a part of the node comes before all that need it whole. largest is the
// number of like devices of the node that has the most.
func (n Node) wantedInParts(queue []*state.Job, largest int) bool {
	for _, j := range queue {
		least := max(j.Spec.MinDevices, 1)
		switch {
		case j.Spec.DeviceNeed().Divides(n.Spec):
			return true
		case least > largest && least <= len(n.Devices):
			return false
		}
	}
	return false
}

// unlike says whether not all devices of the node are alike.
func (n Node) unlike() bool {
	return slices.ContainsFunc(n.Devices, func(d train.Device) bool { return likenessOf(d) != likenessOf(n.Devices[0]) })
}

// parts returns the nodes of like devices that a node consists of, in the order of their first devices.
func (n Node) parts() []Node {
	if !n.unlike() {
		return []Node{n}
	}
	var kinds []likeness
	for _, d := range n.Devices {
		if !slices.Contains(kinds, likenessOf(d)) {
			kinds = append(kinds, likenessOf(d))
		}
	}
	parts := make([]Node, len(kinds))
	for i, kind := range kinds {
		spec := *n.Spec
		spec.Devices = slices.DeleteFunc(slices.Clone(n.Devices), func(d train.Device) bool { return likenessOf(d) != kind })
		parts[i] = newNode(&spec)
		parts[i].Realm = n.Realm
	}
	return parts
}

// Mixed returns a machine with enough devices for a gang that are not planned as the gang needs them: all together for
// a gang ahead of it, or each kind apart.
func (s *Snapshot) Mixed(g *Gang) (at train.NodeID, apart, found bool) {
	suitable := map[train.NodeID]int{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		apart = i > 0 && s.Nodes[i-1].ID == n.ID
		for k := range n.Devices {
			if g.Need.Fits(&n.Devices[k]) {
				suitable[n.ID]++
			}
		}
		if (apart || n.unlike()) && suitable[n.ID] >= g.Least && n.Spec.Has(g.Spec.NodeLabels) {
			return n.ID, apart, true
		}
	}
	return "", false, false
}
