package cluster

import (
	"iter"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// exclude takes away the devices that no job may have, and closes those that only the jobs on them may keep. A node
// without devices is left out.
func (s *Snapshot) exclude() {
	standings := s.State.Standings()
	if len(standings) == 0 {
		return
	}
	left := s.Nodes[:0:0]
	for i := range s.Nodes {
		whole := s.Nodes[i]
		of := standings[whole.ID]
		if of == nil {
			left = append(left, whole)
			continue
		}
		s.Excluded = append(s.Excluded, whole)
		spec := *whole.Spec
		spec.Devices = slices.DeleteFunc(slices.Clone(whole.Devices), func(d train.Device) bool { return of[d.ID] == state.Gone })
		if len(spec.Devices) == 0 {
			continue
		}
		n := newNode(&spec)
		n.Spec, n.Cores, n.Realm = whole.Spec, whole.Cores, whole.Realm
		for k := range n.Devices {
			if of[n.Devices[k].ID] == state.Closed {
				n.close(k)
			}
		}
		left = append(left, n)
	}
	s.Nodes = left
}

func (n *Node) close(device int) {
	if n.Closed == nil {
		n.Closed = make([]bool, len(n.Devices))
	}
	n.Closed[device] = true
}

// find returns the place of a device; below zero if the node does not have it.
func (n *Node) find(id train.DeviceID) int {
	return slices.IndexFunc(n.Devices, func(d train.Device) bool { return d.ID == id })
}

// IsClosed says whether only the jobs on a device may keep it.
func (n *Node) IsClosed(device int) bool { return n.Closed != nil && n.Closed[device] }

// Room is the number of devices that newcomers could have if nobody had them.
func (n *Node) Room() int {
	room := len(n.Devices)
	for _, closed := range n.Closed {
		if closed {
			room--
		}
	}
	return room
}

// OnClosed says whether any device of a placement is closed. A gang that holds one stays exactly as it is.
func (s *Snapshot) OnClosed(p Placement) bool {
	for i := range p.Parts {
		part := &p.Parts[i]
		if n := &s.Nodes[part.Node]; n.Closed != nil && slices.ContainsFunc(part.Devices, n.IsClosed) {
			return true
		}
	}
	return false
}

// openIn is the number of open devices of a part.
func (s *Snapshot) openIn(part *Part) int {
	n := &s.Nodes[part.Node]
	if n.Closed == nil {
		return part.Count
	}
	open := part.Count
	for _, d := range part.Devices {
		if n.IsClosed(d) {
			open--
		}
	}
	return open
}

// openOn is the number of open devices that a placement has of a node.
func (s *Snapshot) openOn(p Placement, node int) int {
	open := 0
	for i := range p.Parts {
		if p.Parts[i].Node == node {
			open += s.openIn(&p.Parts[i])
		}
	}
	return open
}

// Whole yields all nodes with all their devices, also those that are excluded.
func (s *Snapshot) Whole() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for i := range s.Excluded {
			if !yield(&s.Excluded[i]) {
				return
			}
		}
		for i := range s.Nodes {
			if !s.excluded(s.Nodes[i].ID) && !yield(&s.Nodes[i]) {
				return
			}
		}
	}
}

// WholeNodes yields the nodes with an id, with all their devices.
func (s *Snapshot) WholeNodes(id train.NodeID) iter.Seq[*Node] {
	nodes := s.Nodes
	if s.excluded(id) {
		nodes = s.Excluded
	}
	return func(yield func(*Node) bool) {
		for at := range withID(nodes, id) {
			if !yield(&nodes[at]) {
				return
			}
		}
	}
}

func (s *Snapshot) excluded(id train.NodeID) bool {
	for range withID(s.Excluded, id) {
		return true
	}
	return false
}

// excludedFrom returns the exclusion that keeps a gang off a part that it was given; nil if none does.
func (s *Snapshot) excludedFrom(g *Gang, part train.Part) *train.Exclusion {
	for i := range s.State.Exclusions {
		e := &s.State.Exclusions[i]
		if e.Node == part.Node && e.Concerns(g.ID) && slices.ContainsFunc(part.Devices, e.Covers) {
			return e
		}
	}
	return nil
}

// ExcludedFrom returns why a gang cannot have what the last plan gave it; nil if nothing of that is excluded.
func (s *Snapshot) ExcludedFrom(g *Gang) *train.Exclusion {
	if g.Planned == nil {
		return nil
	}
	for _, part := range g.Planned.Places() {
		if e := s.excludedFrom(g, part); e != nil {
			return e
		}
	}
	return nil
}
