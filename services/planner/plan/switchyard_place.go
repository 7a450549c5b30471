package plan

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"slices"
)

// place puts the gangs on nodes, one priority after the other. Those that keep their size stay; then the large ones come first.
func (m *market) place() {
	for _, tier := range m.tiers {
		m.placeTier(tier)
	}
	if m.fleet.state.Tuning.OneNode {
		m.spread()
	}
	for _, b := range m.jobs {
		b.foretell()
	}
}

func (m *market) placeTier(tier []*bidder) {
	// Who must not be changed or has waited too long takes its place before the others keep theirs.
	var first, rest []*bidder
	for _, b := range tier {
		if b.fixed || b.late {
			first = append(first, b)
		} else {
			rest = append(rest, b)
		}
	}
	m.squeeze(append(m.settle(first), m.settle(rest)...))
}

// settle places jobs where they are or anew, and gives back those that got nothing.
func (m *market) settle(bidders []*bidder) []*bidder {
	var moving, waiting []*bidder
	for _, b := range bidders {
		m.fleet.claim(b.gang, -1)
		at := b.heldOption()
		stays := at != nowhere && (b.fixed || b.chosen == at)
		switch {
		case stays && m.fleet.keep(b.gang):
			b.chosen = at
			b.gang.choose(b.options[at])
		case b.chosen != nowhere:
			moving = append(moving, b)
		default:
			waiting = append(waiting, b)
		}
	}
	for k := range m.pools {
		p := &m.pools[k]
		p.byFree = make([]intHeap, p.perNode+1)
		for _, i := range p.nodes {
			p.put(m.fleet, i)
		}
	}
	slices.SortStableFunc(moving, func(x, y *bidder) int {
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
func (b *bidder) heldOption() int {
	return slices.IndexFunc(b.options, func(o option) bool { return o.held })
}

// squeeze gives what is left over to jobs that got nothing: what was free for them in number was not where they needed it.
func (m *market) squeeze(waiting []*bidder) {
	for _, b := range waiting {
		b.most = 0
		for i := range b.options {
			b.most = math.Max(b.most, b.options[i].value/float64(b.options[i].devices))
		}
	}
	slices.SortStableFunc(waiting, func(x, y *bidder) int { return cmp.Compare(y.most, x.most) })
	for _, b := range waiting {
		b.chosen = nowhere
		if at := b.heldOption(); at != nowhere && m.fleet.keep(b.gang) {
			b.chosen = at
			b.gang.choose(b.options[at])
			for _, s := range b.gang.got {
				m.pools[b.options[at].pool].put(m.fleet, s.node)
			}
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

// spread lets gangs that may not span nodes have what is free where they are, the best upgrade first.
func (m *market) spread() {
	for {
		var best *bidder
		option, per := nowhere, 0.0
		for _, b := range m.jobs {
			if at, worth := m.wider(b); worth > per {
				best, option, per = b, at, worth
			}
		}
		if best == nil {
			return
		}
		g, shares := best.gang, []share{{best.gang.got[0].node, best.options[option].devices}}
		m.fleet.give(g, []share{{shares[0].node, shares[0].devices - g.got[0].devices}})
		g.got, best.chosen = shares, option
		g.choose(best.options[option])
	}
}

// wider is the best option with more devices where a job is, and what it is worth more for each of them.
func (m *market) wider(b *bidder) (int, float64) {
	if b.chosen == nowhere || len(b.gang.got) != 1 || b.fixed && b.options[b.chosen].held {
		return nowhere, 0
	}
	node := &m.fleet.nodes[b.gang.got[0].node]
	room := min(node.unclaimed(), m.fleet.board.allowance.most(b.gang.Spec.Tenant, node.watts))
	has, at, per := b.options[b.chosen].value, nowhere, 0.0
	if room == 0 {
		return at, per
	}
	for i := range b.options {
		o := &b.options[i]
		more := o.devices - b.gang.got[0].devices
		if o.pool == b.options[b.chosen].pool && more > 0 && more <= room && (o.value-has)/float64(more) > per {
			at, per = i, (o.value-has)/float64(more)
		}
	}
	return at, per
}

// choose sets the batch, for jobs that leave it to the planner.
func (g *gang) choose(o option) {
	if g.Limits != nil {
		g.batch = o.batch
	}
}

// put files a node under its free devices.
func (p *pool) put(f *fleet, node int) {
	if free := f.nodes[node].unclaimed(); free > 0 {
		heap.Push(&p.byFree[free], node)
	}
}

// first is the first node with exactly so many devices that are free and claimed by nobody.
func (p *pool) first(f *fleet, free int) (int, bool) {
	for h := &p.byFree[free]; len(*h) > 0; heap.Pop(h) {
		if f.nodes[(*h)[0]].unclaimed() == free {
			return (*h)[0], true
		}
	}
	return nowhere, false
}

// put places one gang: on the node that it leaves the least room on, or over the emptiest ones. Where no node has room for a small gang, it gets what
// the emptiest has rather than a network between its devices, or what it holds if that is as much; and where nobody has even the least room, it takes the
// places of lower priorities.
func (m *market) put(b *bidder) bool {
	o := b.options[b.chosen]
	p := &m.pools[o.pool]
	least := b.gang.min
	wanted, mostNodes := min(o.devices, m.fleet.board.allowance.most(b.gang.Spec.Tenant, p.watts)), math.MaxInt
	if wanted < least {
		return false
	}
	if wanted <= p.perNode {
		mostNodes = 1
		for free := wanted; free <= p.perNode; free++ {
			if node, found := p.first(m.fleet, free); found {
				m.seat(b, o, []share{{node, wanted}})
				return true
			}
		}
	}
	if m.fleet.state.Tuning.OneNode && m.stay(b, p) {
		return true
	}
	var shares []share
	missing := wanted
	for free := p.perNode; free > 0 && missing > 0 && len(shares) < mostNodes; free-- {
		for missing > 0 && len(shares) < mostNodes {
			node, found := p.first(m.fleet, free)
			if !found {
				break
			}
			heap.Pop(&p.byFree[free])
			take := min(free, missing)
			shares = append(shares, share{node, take})
			missing -= take
		}
	}
	if wanted-missing < least {
		for _, s := range shares {
			p.put(m.fleet, s.node)
		}
		if shares = m.displace(p, least); shares == nil {
			return false
		}
	}
	m.seat(b, o, shares)
	return true
}

// stay leaves a gang, for which no node has the room that it was to get, where it is, unless some node has more than it holds: as much elsewhere would be a
// restart for nothing.
func (m *market) stay(b *bidder, p *pool) bool {
	g, at := b.gang, b.heldOption()
	if at == nowhere || b.options[at].pool != b.options[b.chosen].pool || b.options[at].devices > b.options[b.chosen].devices {
		return false
	}
	for _, s := range g.held {
		if m.fleet.nodes[s.node].unclaimed() < s.devices {
			return false
		}
	}
	for free := p.perNode; free > width(g.held); free-- {
		if _, found := p.first(m.fleet, free); found {
			return false
		}
	}
	if !m.fleet.keep(g) {
		return false
	}
	b.chosen = at
	g.choose(b.options[at])
	for _, s := range g.held {
		p.put(m.fleet, s.node)
	}
	return true
}

// displace finds the least that a gang needs where it takes the fewest devices from others that claim them; nil where there is nothing.
func (m *market) displace(p *pool, least int) []share {
	taken := func(i int) int { return max(least-m.fleet.nodes[i].unclaimed(), 0) }
	best := nowhere
	for _, i := range p.nodes {
		if m.fleet.nodes[i].free >= least && (best == nowhere || taken(i) < taken(best)) {
			best = i
		}
	}
	if best != nowhere {
		return []share{{best, least}}
	}
	if m.fleet.state.Tuning.OneNode || least <= p.perNode {
		return nil
	}
	nodes := slices.Clone(p.nodes)
	slices.SortStableFunc(nodes, func(x, y int) int { return cmp.Compare(m.fleet.nodes[y].unclaimed(), m.fleet.nodes[x].unclaimed()) })
	var shares []share
	for _, i := range nodes {
		if take := min(m.fleet.nodes[i].free, least); take > 0 {
			shares = append(shares, share{i, take})
			least -= take
		}
	}
	if least > 0 {
		return nil
	}
	return shares
}

// seat gives a gang its shares. If they are not what it was to get, the option is the one that comes closest, with the batch for what it is.
func (m *market) seat(b *bidder, o option, shares []share) {
	if n := width(shares); n != o.devices || len(shares) != o.nodes {
		for i := range b.options {
			if x := &b.options[i]; x.pool == o.pool && x.devices <= n && (x.devices > b.options[b.chosen].devices || b.options[b.chosen].devices > n) {
				b.chosen = i
			}
		}
		if !b.gang.fixedBatch() {
			_, o.batch = m.book.curve(b.gang, m.pools[o.pool].model).best(b.gang, n, len(shares))
		}
	}
	m.fleet.give(b.gang, shares)
	b.gang.choose(o)
	for _, s := range shares {
		m.pools[o.pool].put(m.fleet, s.node)
	}
}

// keepAll leaves every gang as it is.
func (f *fleet) keepAll(b *book) {
	for _, g := range f.gangs {
		if f.keep(g) && !g.fixedBatch() {
			curve := b.curve(g, f.nodes[g.held[0].node].model)
			goodput, batch := curve.best(g, width(g.held), len(g.held))
			g.choose(option{batch: batch})
			if goodput > 0 {
				g.predicted.know(g.min, width(g.held), curve.timeLeft(g, width(g.held), len(g.held), goodput))
			}
		}
	}
}

// news is a fingerprint of all that a decision rests on besides the time and what the gangs hold.
func (f *fleet) news() uint64 {
	h := fnv.New64a()
	var buffer []byte
	number := func(x ...float64) {
		for _, v := range x {
			buffer = binary.LittleEndian.AppendUint64(buffer, math.Float64bits(v))
		}
	}
	t := &f.state.Tuning
	number(f.state.PowerBudgetWatts, f.board.granted.watts, t.EnergyWeight, t.FairnessBound, t.StarvationSeconds)
	for _, tenant := range slices.Sorted(maps.Keys(f.state.Quotas)) {
		buffer = append(append(buffer, tenant...), 0)
		number(float64(f.state.Quotas[tenant]))
	}
	for i := range f.nodes {
		buffer = append(append(append(append(buffer, f.nodes[i].id...), 0), f.nodes[i].model...), 0)
		number(float64(len(f.nodes[i].devices)), float64(f.nodes[i].memory), f.nodes[i].watts)
		buffer = append(buffer, f.nodes[i].traits...)
	}
	for _, g := range f.everyone() {
		buffer = append(append(buffer, g.ID...), 0)
		number(g.Progress, g.DeviceSeconds, float64(g.EpochsDone), float64(len(g.Seen)), float64(g.Spec.MaxEpochs), float64(g.max), float64(g.Priority))
		if g.Noise != nil {
			number(g.Noise.Variance, g.Noise.Square)
		}
		if g.Model != nil {
			number(float64(g.Model.EpochsSeen), g.Model.StepsSeen, g.Model.EpochSeconds)
		}
	}
	_, _ = h.Write(buffer) // never fails
	return h.Sum64()
}

// everyone are all gangs in order of priority and submission.
func (f *fleet) everyone() []*gang {
	return slices.SortedFunc(slices.Values(slices.Concat(f.pinned, f.gangs)), func(x, y *gang) int { return cmp.Compare(x.rank, y.rank) })
}

func heldShares(g *gang) []share { return g.held }
func gotShares(g *gang) []share  { return g.got }

// withHoldings adds what the gangs hold, or are to hold, to a fingerprint. That an attempt can be asked to leave is news, too, where it goes on as it is.
func (f *fleet) withHoldings(news uint64, of func(*gang) []share) uint64 {
	h := fnv.New64a()
	buffer := binary.LittleEndian.AppendUint64(nil, news)
	for _, g := range f.everyone() {
		for _, s := range of(g) {
			buffer = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(buffer, uint32(s.node)), uint32(s.devices))
		}
		end := byte(math.MaxUint8)
		if f.state.Tuning.AtEpochs && slices.Equal(g.held, of(g)) {
			end -= g.openness()
		}
		buffer = append(buffer, end)
	}
	_, _ = h.Write(buffer)
	return h.Sum64()
}

// openness says how far a job that runs as planned may be changed: not at all, for a higher priority, or at will.
func (g *gang) openness() byte {
	switch r := g.Running; {
	case len(g.held) == 0:
		return 0
	case g.rescalable:
		return 2
	case r != nil && g.Planned != nil && r.Spoke && !r.StopPending && r.same(*g.Planned):
		return 1
	}
	return 0
}
