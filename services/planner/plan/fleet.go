package plan

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// fleet is a board for policies whose gangs may span nodes: devices are counted by node and named at the very end.
type fleet struct {
	state State
	board *board
	nodes []slot
	// gangs are the jobs that a decision may move, by submission; pinned ones keep what they run on.
	gangs, pinned []*gang
	// total counts all devices, free those that nobody was given yet.
	total, free int
	// memory goes into the plan.
	memory string
}

// slot is a node.
type slot struct {
	id      train.NodeID
	model   string
	island  string
	devices []train.Device
	// memory is that of the smallest device, watts what a device draws more when a job has it.
	memory int64
	watts  float64
	traits traits
	// free were given to nobody; claimed are held by gangs that were not served yet, where that matters.
	free, claimed int
}

// share is a number of devices of one node, by its place in fleet.nodes.
type share struct{ node, devices int }

// gang is a job and what it gets. The order of shares is the order of ranks.
type gang struct {
	*candidate
	held, got []share
	batch     train.Batch
}

// width is the number of devices of all shares.
func width(shares []share) int {
	sum := 0
	for _, s := range shares {
		sum += s.devices
	}
	return sum
}

// wanted is how many devices the user asked for.
func (g *gang) wanted() int {
	if g.Request != nil {
		return max(g.Request.Devices, 1)
	}
	return g.min
}

// most is how many devices are of any use to a job that may be resized.
func (g *gang) most() int { return g.max }

func newFleet(s State) *fleet {
	b := newBoard(s, !s.Tuning.OneNode)
	f := &fleet{state: s, board: b, nodes: make([]slot, len(b.nodes)), total: b.total, free: b.total}
	f.state.Tuning = b.tuning
	for i := range b.nodes {
		n := &b.nodes[i]
		f.nodes[i] = slot{id: n.id, model: n.model, island: n.island, devices: n.devices, memory: n.memory, watts: n.watts, traits: n.traits, free: len(n.devices)}
	}
	byID := make(map[train.JobID]*candidate, len(b.jobs))
	for _, c := range b.jobs {
		byID[c.ID] = c
	}
	for i := range s.Jobs {
		c := byID[s.Jobs[i].ID]
		if c == nil {
			continue
		}
		g := &gang{candidate: c, held: c.base.shares()}
		if c.pinned {
			f.pinned = append(f.pinned, g)
			f.give(g, g.held)
			continue
		}
		f.gangs = append(f.gangs, g)
	}
	earlier := func(x, y *gang) int {
		return cmp.Or(x.SubmittedAt.Compare(y.SubmittedAt), cmp.Compare(x.ID, y.ID))
	}
	// Jobs that were submitted in one instant keep the order in which the state lists them, if it is in order at all.
	if !slices.IsSortedFunc(f.gangs, func(x, y *gang) int { return x.SubmittedAt.Compare(y.SubmittedAt) }) {
		slices.SortFunc(f.gangs, earlier)
	}
	return f
}

// fits says whether all the shares are free and a gang may have them.
func (f *fleet) fits(g *gang, shares []share) bool {
	watts := 0.0
	for _, s := range shares {
		if f.nodes[s.node].free < s.devices {
			return false
		}
		watts += float64(s.devices) * f.nodes[s.node].watts
	}
	return f.board.allowance.covers(g.Spec.Tenant, width(shares), watts)
}

// give hands shares to a gang that has none. They must be free.
func (f *fleet) give(g *gang, shares []share) {
	g.got = shares
	for _, s := range shares {
		f.nodes[s.node].free -= s.devices
		f.free -= s.devices
		f.board.allowance.take(g.Spec.Tenant, s.devices, f.nodes[s.node].watts)
	}
}

// keep gives a gang what it holds, if that is free.
func (f *fleet) keep(g *gang) bool {
	if len(g.held) == 0 || !f.fits(g, g.held) {
		return false
	}
	f.give(g, g.held)
	return true
}

// shelves place gangs: one shelf for each model of device, since a gang does not mix models, and where links lose packets for each island.
type shelves struct {
	fleet *fleet
	all   []*shelf
}

// shelf finds the node with the most free devices, the first of them, without a search. It is good as long as no devices come free.
type shelf struct {
	fleet *fleet
	model string
	// free counts the free devices of the model, total all of them; watts is the most that one of them draws more with work.
	free, total int
	watts       float64
	// byFree are heaps of nodes by the number of devices that were free when they were put there; others are outdated.
	byFree []intHeap
	top    int
}

func (f *fleet) newShelves() *shelves {
	all := &shelves{fleet: f}
	byModel := map[string]*shelf{}
	for i := range f.nodes {
		alike := f.nodes[i].model + f.nodes[i].island
		s := byModel[alike]
		if s == nil {
			s = &shelf{fleet: f, model: f.nodes[i].model}
			byModel[alike] = s
			all.all = append(all.all, s)
		}
		s.free += f.nodes[i].free
		s.total += len(f.nodes[i].devices)
		s.watts = max(s.watts, f.nodes[i].watts)
		s.put(i)
	}
	return all
}

// largest is the most devices that one gang can ever have.
func (s *shelves) largest() int {
	most := 0
	for _, one := range s.all {
		most = max(most, one.total)
	}
	return most
}

// pack gives a gang so many devices of the model of which the most are free, all or nothing.
func (s *shelves) pack(g *gang, devices int) bool {
	var best *shelf
	for _, one := range s.all {
		if one.free >= devices && (best == nil || one.free > best.free) {
			best = one
		}
	}
	return best != nil && best.pack(g, devices)
}

func (s *shelf) put(node int) {
	free := s.fleet.nodes[node].free
	for len(s.byFree) <= free {
		s.byFree = append(s.byFree, nil)
	}
	heap.Push(&s.byFree[free], node)
	s.top = max(s.top, free)
}

// emptiest is the node with the most free devices, the first of them; false where none is free.
func (s *shelf) emptiest() (int, bool) {
	for ; s.top > 0; s.top-- {
		for len(s.byFree[s.top]) > 0 {
			node := s.byFree[s.top][0]
			if s.fleet.nodes[node].free == s.top {
				return node, true
			}
			heap.Pop(&s.byFree[s.top])
		}
	}
	return nowhere, false
}

// pack gives a gang so many devices, each time from the emptiest node (the placer that the published simulator shares between policies). It gives all or
// nothing.
func (s *shelf) pack(g *gang, devices int) bool {
	if devices < 1 || s.free < devices || devices > s.fleet.board.allowance.most(g.Spec.Tenant, s.watts) {
		return false
	}
	var shares []share
	s.free -= devices
	for devices > 0 {
		node, _ := s.emptiest()
		take := min(devices, s.fleet.nodes[node].free)
		shares = append(shares, share{node, take})
		s.fleet.nodes[node].free -= take
		s.fleet.free -= take
		s.fleet.board.allowance.take(g.Spec.Tenant, take, s.fleet.nodes[node].watts)
		devices -= take
		s.put(node)
	}
	g.got = shares
	return true
}

// intHeap is a heap of numbers, the smallest first.
type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push and Pop make it a heap.Interface.
func (h *intHeap) Push(x any) { *h = append(*h, x.(int)) }

// Pop takes the last one off.
func (h *intHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
