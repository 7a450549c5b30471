package policy

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// The bisection of prices: with several pools each is set again as the others change.
const (
	priceHalvings = 24
	priceSweeps   = 4
)

// limit sets up what the jobs share.
func (m *allocation) limit() {
	for k := range m.pools {
		m.limits = append(m.limits, limit{left: float64(m.pools[k].free)})
	}
	quotas := m.Ledger.Quotas()
	m.quotas = make(map[string]int, len(quotas))
	for _, tenant := range slices.Sorted(maps.Keys(quotas)) {
		m.quotas[tenant] = len(m.limits)
		m.limits = append(m.limits, limit{left: float64(max(quotas[tenant], 0))})
	}
	m.power = none
	if watts := m.Ledger.Watts(); !math.IsInf(watts, 1) {
		m.power = len(m.limits)
		m.limits = append(m.limits, limit{left: math.Max(watts, 0)})
	}
}

// left returns what is left of each limit.
func (m *allocation) left() []float64 {
	left := make([]float64, len(m.limits))
	for k := range m.limits {
		left[k] = m.limits[k].left
	}
	return left
}

// use returns how much of a limit an option takes; 0 without an option.
func (m *allocation) use(b *candidate, o *option, limit int) float64 {
	if o == nil {
		return 0
	}
	switch limit {
	case o.pool, b.quota:
		return float64(o.devices)
	case m.power:
		return o.watts
	}
	return 0
}

// fits says whether a job may have one option instead of another.
func (m *allocation) fits(b *candidate, from, to *option, left []float64) bool {
	const slack = 1e-6
	for _, k := range [...]int{to.pool, b.quota, m.power} {
		if k != none && m.use(b, to, k)-m.use(b, from, k) > left[k]+slack {
			return false
		}
	}
	return true
}

// take gives a job one option instead of another.
func (m *allocation) take(b *candidate, from, to *option, left []float64) {
	for k := range left {
		left[k] += m.use(b, from, k) - m.use(b, to, k)
	}
}

// cost returns the cost of an option at the present prices.
func (m *allocation) cost(b *candidate, o *option) float64 {
	cost := m.limits[o.pool].price * float64(o.devices)
	if b.quota != none {
		cost += m.limits[b.quota].price * float64(o.devices)
	}
	if m.power != none {
		cost += m.limits[m.power].price * o.watts
	}
	return cost
}

// pick is the option with the most value above its price; nil if none is worth it. A job that is promised something
// takes at least that, at any price.
func (m *allocation) pick(b *candidate) *option {
	var best *option
	most, least := 0.0, 0
	if b.floor != nil {
		most, least = math.Inf(-1), b.floor.devices
	}
	for i := range b.options {
		o := &b.options[i]
		if surplus := o.value - m.cost(b, o); surplus > most && o.devices >= least {
			best, most = o, surplus
		}
	}
	return best
}

// demand returns the amount of a limit that all jobs together ask for at the present prices.
func (m *allocation) demand(limit int) float64 {
	sum := 0.0
	for _, b := range m.jobs {
		sum += m.use(b, m.pick(b), limit)
	}
	return sum
}

// clear gives each job its option: first what was promised, then what it asks for at the prices, then better ones of
// what is left.
func (m *allocation) clear() {
	m.setPrices()
	left := m.left()
	perDevice := func(b *candidate) float64 { return b.chosen.value / float64(b.chosen.devices) }
	var order []*candidate
	for _, b := range m.jobs {
		if b.chosen = m.pick(b); b.chosen != nil {
			order = append(order, b)
		}
		m.take(b, nil, b.floor, left)
	}
	slices.SortStableFunc(order, func(x, y *candidate) int { return cmp.Compare(perDevice(y), perDevice(x)) })
	for _, b := range order {
		if m.fits(b, b.floor, b.chosen, left) {
			m.take(b, b.floor, b.chosen, left)
		} else {
			b.chosen = b.floor
		}
	}
	m.fill(left)
}

// setPrices finds the least prices at which what there is suffices.
func (m *allocation) setPrices() {
	top := make([]float64, len(m.limits))
	for _, b := range m.jobs {
		for i := range b.options {
			o := &b.options[i]
			for k := range top {
				if use := m.use(b, o, k); use > 0 {
					top[k] = math.Max(top[k], o.value/use)
				}
			}
		}
	}
	sweeps := 1
	if len(m.limits) > 1 {
		sweeps = priceSweeps
	}
	for k := range m.pools {
		m.limits[k].price = slices.Max(top[:len(m.pools)]) / 8
	}
	for range sweeps {
		for k := range m.limits {
			l := &m.limits[k]
			low, high := 0.0, 1.01*top[k]
			if k < len(m.pools) {
				high = 1.01 * slices.Max(top[:len(m.pools)])
			}
			for range priceHalvings {
				l.price = (low + high) / 2
				if m.demand(k) > l.left {
					low = l.price
				} else {
					high = l.price
				}
			}
			l.price = high
		}
	}
}

// upgrade is a better option for a job, and what it is worth more per further device.
type upgrade struct {
	job    int
	option *option
	per    float64
}

// fill hands out what is left, the best upgrade first.
func (m *allocation) fill(left []float64) {
	queue := cluster.Heap[upgrade]{Less: func(x, y upgrade) bool {
		if x.per != y.per {
			return x.per > y.per
		}
		return x.job < y.job
	}}
	push := func(u upgrade) {
		if u.option != nil {
			queue.Push(u)
		}
	}
	for i := range m.jobs {
		push(m.bestUpgrade(i, left))
	}
	for queue.Len() > 0 {
		u := queue.Pop()
		if now := m.bestUpgrade(u.job, left); now != u {
			push(now)
			continue
		}
		b := m.jobs[u.job]
		m.take(b, b.chosen, u.option, left)
		b.chosen = u.option
		push(m.bestUpgrade(u.job, left))
	}
}

// bestUpgrade returns the best upgrade that fits, without an option if none fits.
func (m *allocation) bestUpgrade(job int, left []float64) upgrade {
	b := m.jobs[job]
	has := option{pool: none}
	if b.chosen != nil {
		has = *b.chosen
	}
	best := upgrade{job: job}
	for i := range b.options {
		o := &b.options[i]
		if o.value <= has.value {
			continue
		}
		more := o.devices
		if o.pool == has.pool {
			more -= has.devices
		}
		// A better option that needs no more devices comes first of all.
		if per := (o.value - has.value) / math.Max(float64(more), 1e-3); per > best.per && m.fits(b, b.chosen, o, left) {
			best.option, best.per = o, per
		}
	}
	return best
}
