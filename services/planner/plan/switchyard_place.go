package plan

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"
)

// place puts the gangs on nodes. Those that keep their size stay; then the large ones come first.
func (m *market) place() {
	var moving []*bidder
	for _, b := range m.jobs {
		if b.chosen == nowhere {
			continue
		}
		o := b.options[b.chosen]
		if o.held && m.fleet.keep(b.gang) {
			b.gang.choose(o)
			continue
		}
		moving = append(moving, b)
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
		m.put(b)
	}
}

// choose sets the batch, for jobs that leave it to the planner.
func (g *gang) choose(o option) {
	if g.Limits != nil {
		g.batch = o.batch
	}
}

// put files a node under its free devices.
func (p *pool) put(f *fleet, node int) {
	if free := f.nodes[node].free; free > 0 {
		heap.Push(&p.byFree[free], node)
	}
}

// first is the first node with exactly so many free devices.
func (p *pool) first(f *fleet, free int) (int, bool) {
	for h := &p.byFree[free]; len(*h) > 0; heap.Pop(h) {
		if f.nodes[(*h)[0]].free == free {
			return (*h)[0], true
		}
	}
	return nowhere, false
}

// put places one gang: on the node that it leaves the least room on, or over the emptiest ones. Where no node has room for a small gang, it gets what
// the emptiest has rather than a network between its devices.
func (m *market) put(b *bidder) {
	o := b.options[b.chosen]
	p := &m.pools[o.pool]
	wanted, mostNodes := o.devices, math.MaxInt
	if wanted <= p.perNode {
		mostNodes = 1
		for free := wanted; free <= p.perNode; free++ {
			if node, found := p.first(m.fleet, free); found {
				m.seat(b, o, []share{{node, wanted}})
				return
			}
		}
	}
	var shares []share
	for free := p.perNode; free > 0 && wanted > 0 && len(shares) < mostNodes; free-- {
		for wanted > 0 && len(shares) < mostNodes {
			node, found := p.first(m.fleet, free)
			if !found {
				break
			}
			heap.Pop(&p.byFree[free])
			take := min(free, wanted)
			shares = append(shares, share{node, take})
			wanted -= take
		}
	}
	if o.devices-wanted < max(b.gang.Spec.MinDevices, 1) {
		for _, s := range shares {
			p.put(m.fleet, s.node)
		}
		return
	}
	if wanted > 0 || len(shares) != o.nodes {
		_, o.batch = m.book.curve(b.gang, p.model).best(b.gang, o.devices-wanted, len(shares))
	}
	m.seat(b, o, shares)
}

// seat gives a gang its shares.
func (m *market) seat(b *bidder, o option, shares []share) {
	m.fleet.give(b.gang, shares)
	b.gang.choose(o)
	for _, s := range shares {
		m.pools[o.pool].put(m.fleet, s.node)
	}
}

// keepAll leaves every gang as it is.
func (f *fleet) keepAll(b *book) {
	for _, g := range f.gangs {
		if f.keep(g) {
			_, batch := b.curve(g, f.nodes[g.held[0].node].model).best(g, width(g.held), len(g.held))
			g.choose(option{batch: batch})
		}
	}
}

// news is a fingerprint of all that a decision rests on besides the time and what the gangs hold.
func (f *fleet) news() uint64 {
	h := fnv.New64a()
	var buffer []byte
	number := func(x float64) { buffer = binary.LittleEndian.AppendUint64(buffer, math.Float64bits(x)) }
	for i := range f.nodes {
		buffer = append(append(buffer, f.nodes[i].id...), 0)
		number(float64(f.nodes[i].free))
	}
	for _, g := range f.gangs {
		buffer = append(append(buffer, g.ID...), 0)
		number(g.Progress)
		number(g.DeviceSeconds)
		number(float64(g.EpochsDone))
		number(float64(len(g.Seen)))
		number(float64(g.Spec.MaxEpochs))
		number(float64(g.Spec.MaxDevices))
		if g.Noise != nil {
			number(g.Noise.Variance)
			number(g.Noise.Square)
		}
	}
	_, _ = h.Write(buffer) // never fails
	return h.Sum64()
}

func heldShares(g *gang) []share { return g.held }
func gotShares(g *gang) []share  { return g.got }

// withHoldings adds what the gangs hold, or are to hold, to a fingerprint.
func (f *fleet) withHoldings(news uint64, of func(*gang) []share) uint64 {
	h := fnv.New64a()
	buffer := binary.LittleEndian.AppendUint64(nil, news)
	for _, g := range f.gangs {
		for _, s := range of(g) {
			buffer = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(buffer, uint32(s.node)), uint32(s.devices))
		}
		buffer = append(buffer, math.MaxUint8)
	}
	_, _ = h.Write(buffer)
	return h.Sum64()
}
