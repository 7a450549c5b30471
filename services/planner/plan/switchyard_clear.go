package plan

import (
	"cmp"
	"math"
	"slices"
)

// best gives the option with the most value over its price, nowhere where none is worth it.
func (m *market) bestOption(b *bidder) int {
	best, surplus := nowhere, 0.0
	for i := range b.options {
		o := &b.options[i]
		if s := o.value - m.pools[o.pool].price*float64(o.devices); s > surplus {
			best, surplus = i, s
		}
	}
	return best
}

// demand chooses for all and counts the devices of a pool.
func (m *market) demand(pool int) int {
	sum := 0
	for _, b := range m.jobs {
		if at := m.bestOption(b); at != nowhere && b.options[at].pool == pool {
			sum += b.options[at].devices
		}
	}
	return sum
}

// clear finds the prices at which the devices suffice, and gives what is left to whom it is worth most.
func (m *market) clear() {
	top := 0.0
	for _, b := range m.jobs {
		for _, o := range b.options {
			top = math.Max(top, o.value/float64(o.devices))
		}
	}
	sweeps := 1
	if len(m.pools) > 1 {
		sweeps = 4
		for k := range m.pools {
			m.pools[k].price = top / 8
		}
	}
	for range sweeps {
		for k := range m.pools {
			p := &m.pools[k]
			low, high := 0.0, top*1.01
			for range 24 {
				p.price = (low + high) / 2
				if m.demand(k) > p.free {
					low = p.price
				} else {
					high = p.price
				}
			}
			p.price = high
		}
	}
	left := make([]int, len(m.pools))
	for k := range m.pools {
		left[k] = m.pools[k].free
	}
	type wish struct {
		b   *bidder
		per float64
	}
	var order []wish
	for _, b := range m.jobs {
		b.chosen = m.bestOption(b)
		if b.chosen != nowhere {
			o := b.options[b.chosen]
			order = append(order, wish{b, o.value / float64(o.devices)})
		}
	}
	slices.SortStableFunc(order, func(x, y wish) int { return cmp.Compare(y.per, x.per) })
	for _, w := range order {
		o := w.b.options[w.b.chosen]
		if left[o.pool] < o.devices {
			w.b.chosen = nowhere
			continue
		}
		left[o.pool] -= o.devices
	}
	m.fill(left)
}

// fill upgrades jobs one at a time by the most value per device, as long as devices are left.
func (m *market) fill(left []int) {
	for {
		var who *bidder
		what, most := nowhere, 0.0
		for _, b := range m.jobs {
			had, pool, value := 0, nowhere, 0.0
			if b.chosen != nowhere {
				o := b.options[b.chosen]
				had, pool, value = o.devices, o.pool, o.value
			}
			for i := range b.options {
				o := &b.options[i]
				room, more := left[o.pool], o.devices
				if o.pool == pool {
					room += had
					more -= had
				}
				if o.value <= value || o.devices > room {
					continue
				}
				if per := (o.value - value) / math.Max(float64(more), 0.5); per > most {
					who, what, most = b, i, per
				}
			}
		}
		if who == nil {
			return
		}
		if who.chosen != nowhere {
			o := who.options[who.chosen]
			left[o.pool] += o.devices
		}
		who.chosen = what
		left[who.options[what].pool] -= who.options[what].devices
	}
}

// place puts the gangs on nodes.
func (m *market) place() {
	var moving []*bidder
	for _, b := range m.jobs {
		if b.chosen == nowhere {
			continue
		}
		o := b.options[b.chosen]
		if o.held && m.fleet.keep(b.gang) {
			b.gang.batch = o.batch
			continue
		}
		moving = append(moving, b)
	}
	slices.SortStableFunc(moving, func(x, y *bidder) int {
		return cmp.Compare(y.options[y.chosen].devices, x.options[x.chosen].devices)
	})
	for _, b := range moving {
		m.put(b)
	}
}

func (m *market) put(b *bidder) {
	o := b.options[b.chosen]
	p := &m.pools[o.pool]
	nodes := m.fleet.nodes
	if o.devices <= p.perNode {
		// The node that it leaves the least room on, its own first.
		best := nowhere
		for _, i := range p.nodes {
			if nodes[i].free < o.devices {
				continue
			}
			if best == nowhere || nodes[i].free < nodes[best].free {
				best = i
			}
		}
		if best != nowhere {
			m.fleet.give(b.gang, []share{{best, o.devices}})
			b.gang.batch = o.batch
			return
		}
	}
	order := slices.Clone(p.nodes)
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(nodes[y].free, nodes[x].free) })
	if o.devices <= p.perNode && nodes[order[0]].free > 0 {
		n := nodes[order[0]].free
		m.fleet.give(b.gang, []share{{order[0], n}})
		_, b.gang.batch = m.book.curve(b.gang, p).best(b.gang, n, 1)
		return
	}
	var shares []share
	left := o.devices
	for _, i := range order {
		take := min(left, nodes[i].free)
		if take == 0 {
			break
		}
		shares = append(shares, share{i, take})
		left -= take
	}
	if len(shares) == 0 {
		return
	}
	m.fleet.give(b.gang, shares)
	_, b.gang.batch = m.book.curve(b.gang, p).best(b.gang, o.devices-left, len(shares))
}
