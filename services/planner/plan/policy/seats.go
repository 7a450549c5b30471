package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
)

// place puts the gangs on nodes, one priority after the other. Those that keep their size stay; then the large ones
// come first.
func (m *allocation) place() {
	for _, tier := range m.tiers {
		// Gangs that must not be changed or have waited too long take their place before the others keep theirs.
		var first, rest []*candidate
		for _, b := range tier {
			if b.fixed || b.late {
				first = append(first, b)
			} else {
				rest = append(rest, b)
			}
		}
		m.squeeze(append(m.settle(first), m.settle(rest)...))
	}
	if !m.round.Spans {
		m.widen()
	}
	for _, b := range m.jobs {
		b.foretell()
	}
}

// settle places jobs where they are or elsewhere, and returns those that got nothing.
func (m *allocation) settle(candidates []*candidate) []*candidate {
	var moving, waiting []*candidate
	for _, b := range candidates {
		m.round.Ledger.Claim(b.gang, cluster.Placement{})
		at := b.heldOption()
		stays := at != nowhere && (b.fixed || b.chosen == at)
		switch {
		case stays && m.round.Keep(b.gang):
			b.chosen = at
			choose(b.gang, b.options[at])
		case b.chosen != nowhere:
			moving = append(moving, b)
		default:
			waiting = append(waiting, b)
		}
	}
	for k := range m.pools {
		p := &m.pools[k]
		p.byFree = make([]cluster.Heap[int], p.perNode+1)
		for n := range p.byFree {
			p.byFree[n].Less = func(x, y int) bool { return x < y }
		}
		for _, i := range p.nodes {
			m.file(i)
		}
	}
	slices.SortStableFunc(moving, func(x, y *candidate) int {
		return cmp.Compare(y.options[y.chosen].devices, x.options[x.chosen].devices)
	})
	for _, b := range moving {
		if !m.put(b) {
			waiting = append(waiting, b)
		}
	}
	return waiting
}

// heldOption is the one that leaves the job as it is.
func (b *candidate) heldOption() int {
	return slices.IndexFunc(b.options, func(o option) bool { return o.held })
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
		b.chosen = nowhere
		if at := b.heldOption(); at != nowhere && m.round.Keep(b.gang) {
			m.took(b, at)
			continue
		}
		if b.fixed {
			b.fixed = false // what it had is gone: it takes anything
			b.options = m.options(b)
		}
		least := map[int]int{}
		for i := range b.options {
			if at, known := least[b.options[i].pool]; !known || b.options[i].devices < b.options[at].devices {
				least[b.options[i].pool] = i
			}
		}
		for k := range m.pools {
			if at, known := least[k]; known {
				if b.chosen = at; m.put(b) {
					break
				}
				b.chosen = nowhere
			}
		}
	}
}

// took enters that a job has an option, and files its nodes again.
func (m *allocation) took(b *candidate, at int) {
	b.chosen = at
	choose(b.gang, b.options[at])
	for _, part := range b.gang.Got.Parts {
		m.file(part.Node)
	}
}

// widen lets gangs that may not span nodes have what is free where they are, the best upgrade first.
func (m *allocation) widen() {
	for {
		var best *candidate
		option, per := nowhere, 0.0
		for _, b := range m.jobs {
			if at, worth := m.wider(b); worth > per {
				best, option, per = b, at, worth
			}
		}
		if best == nil {
			return
		}
		part := best.gang.Got.Parts[0]
		if !m.give(best.gang, []cluster.Part{{Node: part.Node, Count: best.options[option].devices}}) {
			return
		}
		best.chosen = option
		choose(best.gang, best.options[option])
	}
}

// wider is the best option with more devices where a job is, and what it is worth more for each of them.
func (m *allocation) wider(b *candidate) (int, float64) {
	if b.chosen == nowhere || len(b.gang.Got.Parts) != 1 || b.fixed && b.options[b.chosen].held {
		return nowhere, 0
	}
	part := b.gang.Got.Parts[0]
	room := min(m.unclaimed(b.gang, part.Node), m.round.Ledger.Most(b.gang, part.Node))
	has, at, per := b.options[b.chosen].value, nowhere, 0.0
	if room == 0 {
		return at, per
	}
	for i := range b.options {
		o := &b.options[i]
		more := o.devices - part.Count
		if o.pool == b.options[b.chosen].pool && more > 0 && more <= room && (o.value-has)/float64(more) > per {
			at, per = i, (o.value-has)/float64(more)
		}
	}
	return at, per
}

// choose sets the batch, for jobs that leave it to the planner.
func choose(g *cluster.Gang, o option) {
	if g.Limits != nil {
		g.Batch = o.batch
	}
}

// unclaimed is the number of devices of a node that a gang may have without taking any from another that was not served
// yet.
func (m *allocation) unclaimed(g *cluster.Gang, node int) int {
	return max(m.round.Ledger.Unclaimed(g, node), 0)
}

// file puts a node under its unclaimed devices, in its own pool: what a job holds may be in several, since nodes change
// their class while it runs.
func (m *allocation) file(node int) {
	if free := m.round.Ledger.UnclaimedByAll(node); free > 0 {
		m.pools[m.poolOf[node]].byFree[free].Push(node)
	}
}

// first is the first node with exactly the given number of devices for a gang that are free and that no other gang
// claims.
func (m *allocation) first(p *pool, g *cluster.Gang, free int) (int, bool) {
	if len(m.round.Ledger.Reservations()) > 0 {
		for _, i := range p.nodes {
			if m.unclaimed(g, i) == free && !m.skip[i] {
				return i, true
			}
		}
		return nowhere, false
	}
	for h := &p.byFree[free]; h.Len() > 0; h.Pop() {
		if node := h.Top(); m.round.Ledger.UnclaimedByAll(node) == free && !m.skip[node] {
			return node, true
		}
	}
	return nowhere, false
}

// put places one gang: on the node that it leaves the least room on, or over the emptiest ones. If no node has room for
// a small gang, it gets what the emptiest has rather than a network between its devices, or what it holds if that is as
// much; and if no node has even the least, it takes the places of lower priorities.
func (m *allocation) put(b *candidate) bool {
	o := b.options[b.chosen]
	least := b.gang.Least
	wanted := min(o.devices, m.round.Ledger.Allowed(b.gang, m.pools[o.pool].watts))
	if wanted < least {
		return false
	}
	asked := request{pool: o.pool, devices: wanted, least: least}
	if b.gang.Servers != nil {
		asked.servers = *b.gang.Servers
	}
	if m.refused.Has(b.gang, asked) {
		return false
	}
	if !m.search(b, o, wanted) {
		m.refused.Add(b.gang, asked)
		return false
	}
	return true
}

// search is put for the given number of devices.
func (m *allocation) search(b *candidate, o option, wanted int) bool {
	p, least, mostNodes := &m.pools[o.pool], b.gang.Least, math.MaxInt
	if wanted <= p.perNode {
		mostNodes = 1
		for free := wanted; free <= p.perNode; free++ {
			if node, found := m.first(p, b.gang, free); found {
				return m.seat(b, o, []cluster.Part{{Node: node, Count: wanted}})
			}
		}
	}
	if !m.round.Spans && m.stay(b, p) {
		return true
	}
	parts, missing := m.gather(p, b.gang, wanted, mostNodes)
	if wanted-missing < least {
		if parts = m.displace(p, b.gang, least); parts == nil {
			return false
		}
	}
	return m.seat(b, o, parts)
}

// gather takes up to wanted devices from the emptiest nodes.
func (m *allocation) gather(p *pool, g *cluster.Gang, wanted, mostNodes int) (parts []cluster.Part, missing int) {
	missing = wanted
	for free := p.perNode; free > 0 && missing > 0 && len(parts) < mostNodes; free-- {
		for missing > 0 && len(parts) < mostNodes {
			node, found := m.first(p, g, free)
			if !found {
				break
			}
			m.skip[node] = true
			take := min(free, missing)
			parts, missing = append(parts, cluster.Part{Node: node, Count: take}), missing-take
		}
	}
	for _, part := range parts {
		m.skip[part.Node] = false
		m.file(part.Node)
	}
	return parts, missing
}

// stay leaves a gang, for which no node has the room that it was to get, where it is, unless some node has more than it
// holds: as much elsewhere would be a restart for nothing.
func (m *allocation) stay(b *candidate, p *pool) bool {
	g, at := b.gang, b.heldOption()
	if at == nowhere || b.options[at].pool != b.options[b.chosen].pool || b.options[at].devices > b.options[b.chosen].devices {
		return false
	}
	for _, part := range g.Held.Parts {
		if m.unclaimed(g, part.Node) < part.Count {
			return false
		}
	}
	for free := p.perNode; free > g.Held.Size(); free-- {
		if _, found := m.first(p, g, free); found {
			return false
		}
	}
	if !m.round.Keep(g) {
		return false
	}
	m.took(b, at)
	return true
}

// displace finds the least that a gang needs at the nodes where it takes the fewest devices from others that claim
// them; nil if there is nothing.
func (m *allocation) displace(p *pool, g *cluster.Gang, least int) []cluster.Part {
	taken := func(i int) int { return max(least-m.unclaimed(g, i), 0) }
	best := nowhere
	for _, i := range p.nodes {
		if m.round.Ledger.FreeFor(g, i) >= least && (best == nowhere || taken(i) < taken(best)) {
			best = i
		}
	}
	if best != nowhere {
		return []cluster.Part{{Node: best, Count: least}}
	}
	if !m.round.Spans || least <= p.perNode {
		return nil
	}
	nodes := slices.Clone(p.nodes)
	slices.SortStableFunc(nodes, func(x, y int) int { return cmp.Compare(m.unclaimed(g, y), m.unclaimed(g, x)) })
	var parts []cluster.Part
	for _, i := range nodes {
		if take := min(m.round.Ledger.FreeFor(g, i), least); take > 0 {
			parts = append(parts, cluster.Part{Node: i, Count: take})
			least -= take
		}
	}
	if least > 0 {
		return nil
	}
	return parts
}

// seat gives a gang its parts. If they are not what it was to get, the option is the one that comes closest, with the
// batch for what it is.
func (m *allocation) seat(b *candidate, o option, parts []cluster.Part) bool {
	if !m.give(b.gang, parts) {
		return false
	}
	if n := b.gang.Got.Size(); n != o.devices || len(parts) != o.nodes {
		for i := range b.options {
			if x := &b.options[i]; x.pool == o.pool && x.devices <= n && (x.devices > b.options[b.chosen].devices || b.options[b.chosen].devices > n) {
				b.chosen = i
			}
		}
		if !keepsBatch(b.gang) {
			_, o.batch = m.known.curve(b.gang, m.pools[o.pool].model).best(b.gang, n, len(parts))
		}
	}
	choose(b.gang, o)
	for _, part := range parts {
		m.file(part.Node)
	}
	return true
}

// give gives a gang its workers, and parameter servers beside them if it needs some.
func (m *allocation) give(g *cluster.Gang, parts []cluster.Part) bool {
	p := cluster.Placement{Parts: parts}
	place.AddServers(m.round.Snapshot, g, &p, ServersFor(g, p.Size()))
	return p.Servers() >= g.ServersLeast() && m.round.Ledger.Take(g, p)
}

// annotate chooses the batch of a gang that goes on as it is.
func (b *knowledge) annotate(r *Round, g *cluster.Gang) {
	if keepsBatch(g) || g.Got.Empty() {
		return
	}
	size, nodes := g.Got.Size(), len(g.Got.Parts)
	curve := b.curve(g, r.Nodes[g.Got.Parts[0].Node].Model)
	goodput, batch := curve.best(g, size, nodes)
	choose(g, option{batch: batch})
	if goodput > 0 {
		g.ExpectOn(size, curve.timeLeft(g, size, nodes, goodput))
	}
}

// knows says whether anything tells how long a job will take: its batch range, by which kinds like it are known, a
// model, or its user.
func (b *knowledge) knows(g *cluster.Gang) bool {
	return !keepsBatch(g) || g.Source() != cluster.FromNothing
}
