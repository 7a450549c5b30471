package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// market is one decision: what each job would give for each allocation.
type market struct {
	fleet *fleet
	book  *book
	pools []pool
	jobs  []*bidder
}

// pool is the nodes of one model of device.
type pool struct {
	model string
	nodes []int
	// perNode is the size of the largest node, free the devices that pinned jobs leave.
	perNode, free int
	price         float64
	// byFree are heaps of nodes by free devices, see shelf.
	byFree []intHeap
}

// bidder is a job with the allocations that it may have.
type bidder struct {
	gang    *gang
	options []option
	// chosen is the place of its option; nowhere: none.
	chosen int
	// single is the time to its end, and base its goodput, on one device. Useful are the devices of all pools, counted by their speed for it.
	single, base, useful float64
}

// option is an allocation.
type option struct {
	pool, devices, nodes int
	held                 bool
	batch                train.Batch
	// goodput is with the best batch, left the time to the end.
	goodput, left float64
	// up is the speed-up, value what it is worth, occupied the devices, those of a slow model counting for less.
	up, value, occupied float64
}

func newMarket(f *fleet, b *book) *market {
	m := &market{fleet: f, book: b}
	byModel := map[string]int{}
	for i := range f.nodes {
		n := &f.nodes[i]
		k, known := byModel[n.model]
		if !known {
			k = len(m.pools)
			byModel[n.model] = k
			m.pools = append(m.pools, pool{model: n.model})
		}
		p := &m.pools[k]
		p.nodes = append(p.nodes, i)
		p.perNode = max(p.perNode, len(n.devices))
		p.free += n.free
	}
	for _, g := range f.gangs {
		m.jobs = append(m.jobs, m.bid(g))
	}
	m.weigh()
	return m
}

// sizes are the numbers of devices that fill a node or nodes well, up to the most that a job can use.
func (p *pool) sizes(most int) []int {
	const fine = 8 // numbers of nodes up to which all are tried
	most = min(most, p.free)
	var sizes []int
	for n := 1; n <= min(p.perNode, most); n++ {
		if n <= 4 || n%2 == 0 {
			sizes = append(sizes, n)
		}
	}
	if p.perNode == 0 {
		return nil
	}
	for nodes := 2; nodes*p.perNode <= most; nodes += max(1, nodes/fine) {
		sizes = append(sizes, nodes*p.perNode)
	}
	if k := len(sizes); k > 0 && sizes[k-1] < most && most > p.perNode {
		sizes = append(sizes, most)
	}
	return sizes
}

// bid lists a job's options.
func (m *market) bid(g *gang) *bidder {
	const usual = 24 // options in a pool
	b := &bidder{gang: g, chosen: nowhere, options: make([]option, 0, usual*len(m.pools))}
	had := width(g.held)
	for k := range m.pools {
		p := &m.pools[k]
		here := had > 0 && m.fleet.nodes[g.held[0].node].model == p.model
		curve := m.book.curve(g, p.model)
		offer := func(o option) {
			if o.goodput, o.batch = curve.best(g, o.devices, o.nodes); o.goodput > 0 {
				o.left = curve.timeLeft(g, o.devices, o.nodes, o.goodput)
				b.options = append(b.options, o)
			}
		}
		missing := here && had >= g.Spec.MinDevices && had <= g.most()
		for _, n := range p.sizes(g.most()) {
			if n < g.Spec.MinDevices {
				continue
			}
			o := option{pool: k, devices: n, nodes: (n + p.perNode - 1) / p.perNode}
			if here && n == had {
				o.nodes, o.held, missing = len(g.held), true, false
			}
			offer(o)
		}
		if missing {
			offer(option{pool: k, devices: had, nodes: len(g.held), held: true})
		}
	}
	b.measure(m.pools)
	return b
}

// measure finds the speed on one device, on the model where that is fastest, and the speed-ups over it. A job that does not run on one device is
// measured by its smallest option.
func (b *bidder) measure(pools []pool) {
	slow := make([]float64, len(pools))
	for _, o := range b.options {
		n := float64(o.devices)
		if slow[o.pool] == 0 || o.devices == 1 {
			slow[o.pool] = o.goodput / n
		}
		if b.base == 0 || slow[o.pool] > b.base && o.goodput/n == slow[o.pool] {
			b.base, b.single = o.goodput/n, o.left*n
		}
	}
	for k := range pools {
		if b.base > 0 {
			slow[k] /= b.base
		}
		b.useful += slow[k] * float64(pools[k].free)
	}
	for i := range b.options {
		o := &b.options[i]
		o.up = (1-lookAhead)*o.goodput/b.base + lookAhead*b.single/o.left
		o.occupied = float64(o.devices) * slow[o.pool]
	}
}

// weigh orders the jobs by what they have left and sets what each option is worth.
func (m *market) weigh() {
	order := slices.Clone(m.jobs)
	slices.SortStableFunc(order, func(x, y *bidder) int { return cmp.Compare(y.single, x.single) })
	for behind, b := range order {
		weight := m.weight(b, (1+stillToCome*float64(behind))/math.Max(b.useful, 1))
		for i := range b.options {
			o := &b.options[i]
			o.value = weight * o.up
			if len(b.gang.held) > 0 && !o.held {
				restart := m.fleet.restartSeconds(b.gang)
				o.value *= 1 - restart/math.Min(o.left+restart, math.Max(horizonSeconds, 2*restart))
			}
		}
	}
}

// weight is the least cost of a second's work on one device, where each device held delays the others so much.
func (m *market) weight(b *bidder, delay float64) float64 {
	age := math.Max(m.fleet.state.Now.Sub(b.gang.SubmittedAt).Seconds(), 0)
	expected := (b.gang.DeviceSeconds + patienceSeconds*float64(m.fleet.total)) / (age + patienceSeconds)
	least, smallest := math.Inf(1), true
	for _, o := range b.options {
		if n := float64(o.devices); smallest || n <= expected {
			least, smallest = math.Min(least, (1+delay*o.occupied)/o.up), false
		}
	}
	return least
}

// restartSeconds is the price of a restart of a job.
func (f *fleet) restartSeconds(g *gang) float64 {
	if g.RestartSeconds > 0 {
		return g.RestartSeconds
	}
	return f.state.Tuning.RestartSeconds
}

// base is the batch at which a job's progress is counted.
func (g *gang) base() int {
	switch {
	case g.Limits != nil:
		return max(g.Limits.BaseBatch, 1)
	case g.Request != nil:
		return max(g.Request.GlobalBatch, 1)
	}
	return max(g.Spec.BatchSize, 1)
}

// work is what the user declared, in steps at the base batch, and how much of it is left. One that has done all is taken to be nearly done.
func (g *gang) work() (total, left float64) {
	total = math.Max(float64(g.Spec.TrainingSetSize)*float64(g.Spec.MaxEpochs)/float64(g.base()), 1)
	return total, math.Max(total-g.Progress, total/1000)
}
