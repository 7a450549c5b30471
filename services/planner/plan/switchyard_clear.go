package plan

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// The bisection of prices: with several pools each is set again as the others change.
const (
	priceHalvings = 24
	priceSweeps   = 4
)

// pick is the option with the most value above its price; nowhere if none is worth it.
func (m *market) pick(b *bidder) int {
	best, most := nowhere, 0.0
	for i := range b.options {
		o := &b.options[i]
		if surplus := o.value - m.pools[o.pool].price*float64(o.devices); surplus > most {
			best, most = i, surplus
		}
	}
	return best
}

// demand counts the devices of a pool that all ask for at the present prices.
func (m *market) demand(pool int) int {
	sum := 0
	for _, b := range m.jobs {
		if at := m.pick(b); at != nowhere && b.options[at].pool == pool {
			sum += b.options[at].devices
		}
	}
	return sum
}

// clear gives each job its option.
func (m *market) clear() {
	m.setPrices()
	left := make([]int, len(m.pools))
	for k := range m.pools {
		left[k] = m.pools[k].free
	}
	perDevice := func(b *bidder) float64 { return b.options[b.chosen].value / float64(b.options[b.chosen].devices) }
	var order []*bidder
	for _, b := range m.jobs {
		if b.chosen = m.pick(b); b.chosen != nowhere {
			order = append(order, b)
		}
	}
	slices.SortStableFunc(order, func(x, y *bidder) int { return cmp.Compare(perDevice(y), perDevice(x)) })
	for _, b := range order {
		if o := b.options[b.chosen]; o.devices <= left[o.pool] {
			left[o.pool] -= o.devices
		} else {
			b.chosen = nowhere
		}
	}
	m.fill(left)
}

// setPrices finds the least prices at which the devices suffice.
func (m *market) setPrices() {
	top := 0.0
	for _, b := range m.jobs {
		for i := range b.options {
			top = math.Max(top, b.options[i].value/float64(b.options[i].devices))
		}
	}
	sweeps := 1
	if len(m.pools) > 1 {
		sweeps = priceSweeps
	}
	for k := range m.pools {
		m.pools[k].price = top / 8
	}
	for range sweeps {
		for k := range m.pools {
			p := &m.pools[k]
			low, high := 0.0, 1.01*top
			for range priceHalvings {
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
}

// upgrade is a better option for a job, and what it is worth more per further device.
type upgrade struct {
	job, option int
	per         float64
}

// fill hands out what is left, the best upgrade first.
func (m *market) fill(left []int) {
	var queue upgrades
	for i := range m.jobs {
		if u, found := m.bestUpgrade(i, left); found {
			queue = append(queue, u)
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		u := heap.Pop(&queue).(upgrade)
		now, found := m.bestUpgrade(u.job, left)
		if !found {
			continue
		}
		if now == u {
			b := m.jobs[u.job]
			if b.chosen != nowhere {
				left[b.options[b.chosen].pool] += b.options[b.chosen].devices
			}
			b.chosen = u.option
			left[b.options[u.option].pool] -= b.options[u.option].devices
			if now, found = m.bestUpgrade(u.job, left); !found {
				continue
			}
		}
		heap.Push(&queue, now)
	}
}

// bestUpgrade is the best that fits; false if there is none.
func (m *market) bestUpgrade(job int, left []int) (upgrade, bool) {
	b := m.jobs[job]
	has := option{pool: nowhere}
	if b.chosen != nowhere {
		has = b.options[b.chosen]
	}
	best := upgrade{job: job, option: nowhere}
	for i := range b.options {
		o := &b.options[i]
		more, room := o.devices, left[o.pool]
		if o.pool == has.pool {
			more -= has.devices
		}
		if o.value <= has.value || more > room {
			continue
		}
		// A better option that needs no more devices comes first of all.
		if per := (o.value - has.value) / math.Max(float64(more), 1e-3); per > best.per {
			best.option, best.per = i, per
		}
	}
	return best, best.option != nowhere
}

// upgrades is a heap, the most value per device first, then the earliest job.
type upgrades []upgrade

func (q upgrades) Len() int { return len(q) }
func (q upgrades) Less(i, j int) bool {
	if q[i].per != q[j].per {
		return q[i].per > q[j].per
	}
	return q[i].job < q[j].job
}
func (q upgrades) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push and Pop make it a heap.Interface.
func (q *upgrades) Push(x any) { *q = append(*q, x.(upgrade)) }

// Pop takes the last one off.
func (q *upgrades) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
