package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
)

// place puts the gangs on nodes, one priority after the other. Those that keep their size stay; then the large ones
// come first.
func (m *allocation) place() {
	for _, tier := range m.tiers {
		// Gangs that must not be changed or have waited too long take their place before the others keep theirs.
		first, rest := divide(tier, func(b *candidate) bool { return b.fixed || b.late })
		m.squeeze(append(m.settle(first), m.settle(rest)...))
	}
	if !m.Spans {
		m.widen()
	}
	for _, b := range m.jobs {
		b.foretell()
		m.note(b)
	}
}

// settle places jobs where they are or elsewhere, and returns those that got nothing.
func (m *allocation) settle(candidates []*candidate) []*candidate {
	var moving, waiting []*candidate
	for _, b := range candidates {
		m.Ledger.Claim(b.gang, cluster.Placement{})
		switch {
		case (b.fixed || b.chosen != nil && b.chosen.held) && m.keep(b):
		case b.chosen != nil:
			moving = append(moving, b)
		default:
			waiting = append(waiting, b)
		}
	}
	slices.SortStableFunc(moving, func(x, y *candidate) int { return cmp.Compare(y.chosen.devices, x.chosen.devices) })
	for _, b := range moving {
		if !m.put(b) {
			waiting = append(waiting, b)
		}
	}
	return waiting
}

// keep leaves a job as it is, if what it holds is still to be had.
func (m *allocation) keep(b *candidate) bool {
	held := b.held()
	if held == nil || !m.Keep(b.gang) {
		return false
	}
	b.choose(held)
	return true
}

// held returns the option that leaves the job as it is, or nil.
func (b *candidate) held() *option {
	for i := range b.options {
		if b.options[i].held {
			return &b.options[i]
		}
	}
	return nil
}

func (b *candidate) choose(o *option) {
	b.chosen = o
	setBatch(b.gang, o.batch)
}

// setBatch is for jobs that leave the batch to the planner.
func setBatch(g *cluster.Gang, batch train.Batch) {
	if !keepsBatch(g) {
		g.Batch = batch
	}
}

// squeeze gives what is left over to jobs that got nothing: what was free for them in number was not where they needed
// it.
func (m *allocation) squeeze(waiting []*candidate) {
	for _, b := range waiting {
		b.most = 0
		for i := range b.options {
			b.most = math.Max(b.most, b.options[i].value/float64(b.options[i].devices))
		}
	}
	slices.SortStableFunc(waiting, func(x, y *candidate) int { return cmp.Compare(y.most, x.most) })
	for _, b := range waiting {
		b.chosen = nil
		if m.keep(b) {
			continue
		}
		if b.fixed {
			b.fixed = false // what it had is gone: it takes anything
			b.options = m.options(b)
		}
		for k := range m.pools {
			if b.chosen = b.smallestIn(k); b.chosen != nil && m.put(b) {
				break
			}
			b.chosen = nil
		}
	}
}

// smallestIn returns the option with the fewest devices of a pool, or nil.
func (b *candidate) smallestIn(pool int) *option {
	var least *option
	for i := range b.options {
		if o := &b.options[i]; o.pool == pool && (least == nil || o.devices < least.devices) {
			least = o
		}
	}
	return least
}

// widen lets gangs that may not span nodes have what is free where they are, the best upgrade first.
func (m *allocation) widen() {
	for {
		var best *candidate
		var to *option
		per := 0.0
		for _, b := range m.jobs {
			if o, worth := m.wider(b); worth > per {
				best, to, per = b, o, worth
			}
		}
		if best == nil || !place.Give(m.Snapshot, best.gang, onNode(best.gang.Got.Parts[0].Node, to.devices)) {
			return
		}
		best.choose(to)
	}
}

// wider is the best option with more devices where a job is, and what it is worth more for each of them.
func (m *allocation) wider(b *candidate) (best *option, per float64) {
	if b.chosen == nil || len(b.gang.Got.Parts) != 1 || b.fixed && b.chosen.held {
		return nil, 0
	}
	part := b.gang.Got.Parts[0]
	room := min(m.Ledger.Unclaimed(b.gang, part.Node), m.Ledger.Most(b.gang, part.Node))
	if room <= 0 {
		return nil, 0
	}
	for i := range b.options {
		o := &b.options[i]
		more := o.devices - part.Count
		if o.pool != b.chosen.pool || more <= 0 || more > room {
			continue
		}
		if worth := (o.value - b.chosen.value) / float64(more); worth > per {
			best, per = o, worth
		}
	}
	return best, per
}

// put places one gang: on the node that it leaves the least room on, or over the emptiest ones. If no node has room for
// a small gang, it gets what the emptiest has rather than a network between its devices, or what it holds if that is as
// much; and if no node has even the least, it takes the places of lower priorities.
func (m *allocation) put(b *candidate) bool {
	g := b.gang
	wanted := min(b.chosen.devices, m.Ledger.Allowed(g, m.pools[b.chosen.pool].Watts))
	asked := request{pool: b.chosen.pool, devices: wanted, least: g.Least, class: g.Class}
	if g.Servers != nil {
		asked.servers = *g.Servers
	}
	if wanted < g.Least || m.refused.Has(g, asked) {
		return false
	}
	if !m.search(b, wanted) {
		m.refused.Add(g, asked)
		return false
	}
	return true
}

// search is put for the given number of devices.
func (m *allocation) search(b *candidate, wanted int) bool {
	g, p, mostNodes := b.gang, &m.pools[b.chosen.pool], math.MaxInt
	if wanted <= p.PerNode {
		mostNodes = 1
		if node, found := m.Finder.Fit(p.Pool, g, wanted); found {
			return m.assign(b, onNode(node, wanted))
		}
	}
	if !m.Spans && m.stay(b, p) {
		return true
	}
	to := m.Finder.Gather(p.Pool, g, wanted, mostNodes)
	if to.Size() < g.Least {
		to = m.displace(p, g)
	}
	return !to.Empty() && m.assign(b, to)
}

func onNode(node, devices int) cluster.Placement {
	return cluster.Placement{Parts: []cluster.Part{{Node: node, Count: devices}}}
}

// stay leaves a gang, for which no node has the room that it was to get, where it is, unless some node has more than it
// holds: as much elsewhere would be a restart for nothing.
func (m *allocation) stay(b *candidate, p *pool) bool {
	held := b.held()
	if held == nil || held.pool != b.chosen.pool || held.devices > b.chosen.devices {
		return false
	}
	for _, part := range b.gang.Held.Parts {
		if m.Ledger.Unclaimed(b.gang, part.Node) < part.Count {
			return false
		}
	}
	_, better := m.Finder.Fit(p.Pool, b.gang, held.devices+1)
	return !better && m.keep(b)
}

// displace finds the least that a gang needs at the nodes where it takes the fewest devices from others that claim
// them; empty if there is nothing.
func (m *allocation) displace(p *pool, g *cluster.Gang) cluster.Placement {
	unclaimed := func(node int) int { return max(m.Ledger.Unclaimed(g, node), 0) }
	best, taken := none, 0
	for _, i := range p.Nodes {
		if n := max(g.Least-unclaimed(i), 0); m.Ledger.FreeFor(g, i) >= g.Least && m.Ledger.HasRoom(g, i, g.Least, g.ServersLeast()) && (best == none || n < taken) {
			best, taken = i, n
		}
	}
	if best != none {
		return onNode(best, g.Least)
	}
	if !m.Spans || g.Least <= p.PerNode {
		return cluster.Placement{}
	}
	nodes := slices.Clone(p.Nodes)
	slices.SortStableFunc(nodes, func(x, y int) int { return cmp.Compare(unclaimed(y), unclaimed(x)) })
	var to cluster.Placement
	missing := g.Least
	for _, i := range nodes {
		if take := min(m.Ledger.FreeFor(g, i), missing); take > 0 {
			to.Parts = append(to.Parts, cluster.Part{Node: i, Count: take})
			missing -= take
		}
	}
	if missing > 0 {
		return cluster.Placement{}
	}
	return to
}

// assign gives a gang a placement. If the placement differs from the chosen option, assign takes the closest option,
// with the batch for that placement.
func (m *allocation) assign(b *candidate, to cluster.Placement) bool {
	if !place.Give(m.Snapshot, b.gang, to) {
		return false
	}
	wanted, batch := b.chosen, b.chosen.batch
	if n := b.gang.Got.Size(); n != wanted.devices || len(to.Parts) != wanted.nodes {
		for i := range b.options {
			o := &b.options[i]
			if o.pool == wanted.pool && o.devices <= n && (o.devices > b.chosen.devices || b.chosen.devices > n) {
				b.chosen = o
			}
		}
		if !keepsBatch(b.gang) {
			_, batch = m.known.curve(b.gang, m.pools[wanted.pool].Model).best(b.gang, n, len(to.Parts))
		}
	}
	setBatch(b.gang, batch)
	return true
}
