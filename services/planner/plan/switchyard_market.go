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
	// poolOf is the pool of each node.
	poolOf []int
	jobs   []*bidder
	// tiers are the jobs by priority.
	tiers [][]*bidder
	// limits are what the jobs share: the devices of each pool, then the quotas of tenants, then the power budget.
	limits []limit
	quotas map[string]int
	power  int
	// quiet is for how long nobody has come.
	quiet float64
}

// limit is something of which there is only so much, and its price.
type limit struct{ left, price float64 }

// pool is the nodes of one model of device and one size of its memory, and, where jobs ask for labels, of those that have the same of these.
type pool struct {
	model  string
	memory int64
	traits traits
	nodes  []int
	// perNode is the size of the largest node, free the devices that are left, roomiest the most of them on one node.
	perNode, free, roomiest int
	// watts is the most that one of the devices draws more with work.
	watts float64
	// byFree are heaps of nodes by free devices, see shelf.
	byFree []intHeap
}

// bidder is a job with the allocations that it may have.
type bidder struct {
	gang    *gang
	options []option
	// chosen is the place of its option; nowhere: none. It gets floor at least, if that is somewhere.
	chosen, floor int
	// fixed: it must not be changed now. late: it has waited for so long that it goes before others, with the devices that it is due.
	fixed, late bool
	due         int
	// quota is the limit of its tenant.
	quota int
	// single is the time to its end, and base its goodput, on one device. Useful are the devices of all pools, counted by their speed for it.
	single, base, useful float64
	// soonest is the time to its end on what is best for it: no plan can end it sooner.
	soonest float64
	// most is what a device is worth at most.
	most float64
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
	// watts is what the devices draw more.
	watts float64
}

// newMarket is a market of the first priorities: of as many as fit, see admit.
func newMarket(f *fleet, b *book, tiers [][]*gang) *market {
	m := &market{fleet: f, book: b, poolOf: make([]int, len(f.nodes))}
	type kind struct {
		model  string
		memory int64
		watts  float64
		traits traits
	}
	byKind := map[kind]int{}
	for i := range f.nodes {
		n := &f.nodes[i]
		is := kind{model: n.model, memory: n.memory, traits: n.traits}
		if f.state.PowerBudgetWatts > 0 && f.state.Tuning.OneNode {
			is.watts = n.watts
		}
		k, known := byKind[is]
		if !known {
			k = len(m.pools)
			byKind[is] = k
			m.pools = append(m.pools, pool{model: n.model, memory: n.memory, traits: n.traits})
		}
		m.poolOf[i] = k
		p := &m.pools[k]
		p.nodes = append(p.nodes, i)
		p.perNode, p.roomiest = max(p.perNode, len(n.devices)), max(p.roomiest, n.free)
		p.free += n.free
		p.watts = max(p.watts, n.watts)
	}
	m.quiet = f.quiet()
	m.limit()
	m.admit(tiers)
	m.weigh()
	return m
}

// sizes are the numbers of devices that fill a node or nodes well, up to the most that a job can use. On small nodes all of them do.
func (p *pool) sizes(most int) []int {
	const fine = 8 // numbers of nodes up to which all are tried
	most = min(most, p.free)
	var sizes []int
	for n := 1; n <= min(p.perNode, most); n++ {
		if n <= 4 || n%2 == 0 || n == most {
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

// bid is a job with its options.
func (m *market) bid(g *gang) *bidder {
	b := &bidder{gang: g, chosen: nowhere, floor: nowhere, quota: nowhere, fixed: m.fleet.fixed(g)}
	if k, bound := m.quotas[g.Spec.Tenant]; bound {
		b.quota = k
	}
	b.options = m.options(b)
	b.measure(m.pools)
	return b
}

// options lists what a job may have. One that must not be changed has no choice.
func (m *market) options(b *bidder) []option {
	const usual = 24 // options in a pool
	all := make([]option, 0, usual*len(m.pools))
	g, had := b.gang, width(b.gang.held)
	for k := range m.pools {
		p := &m.pools[k]
		here := had > 0 && m.poolOf[g.held[0].node] == k
		stuck := b.fixed || !g.suits(p.memory, p.traits)
		missing := here && had >= g.min && had <= g.most()
		var curve *speedCurve
		if !g.fixedBatch() {
			curve = m.book.curve(g, p.model)
		}
		for _, n := range m.sizes(g, p) {
			if n < g.min || stuck && !(here && n == had) {
				continue
			}
			o := option{pool: k, devices: n, nodes: (n + p.perNode - 1) / p.perNode}
			if here && n == had {
				o.nodes, o.held, missing = len(g.held), true, false
			}
			if o.foresee(g, p, curve) {
				all = append(all, o)
			}
		}
		if o := (option{pool: k, devices: had, nodes: len(g.held), held: true}); missing && o.foresee(g, p, curve) {
			all = append(all, o)
		}
	}
	return all
}

// foresee fills in how fast a job would be; false where it cannot run like that. A job that keeps its batch has no curve.
func (o *option) foresee(g *gang, p *pool, curve *speedCurve) bool {
	o.watts = float64(o.devices) * p.watts
	if curve == nil {
		const least = 1e-3
		o.left = math.Max(g.remainingOn(o.devices, o.nodes), least)
		o.goodput = 1 / o.left
		return true
	}
	o.goodput, o.batch = curve.best(g, o.devices, o.nodes)
	if o.goodput <= 0 {
		return false
	}
	o.left = curve.timeLeft(g, o.devices, o.nodes, o.goodput)
	return true
}

// sizes are the numbers of devices of a pool that a job may have.
func (m *market) sizes(g *gang, p *pool) []int {
	most := g.most()
	if m.fleet.state.Tuning.OneNode {
		most = min(most, p.roomiest)
	}
	sizes := p.sizes(most)
	if at, listed := slices.BinarySearch(sizes, g.min); !listed && g.min <= min(most, p.free) {
		sizes = slices.Insert(sizes, at, g.min)
	}
	return sizes
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
		if i == 0 || o.left < b.soonest {
			b.soonest = o.left
		}
		o.up = (1-lookAhead)*o.goodput/b.base + lookAhead*b.single/o.left
		o.occupied = float64(o.devices) * slow[o.pool]
	}
}

// weigh orders the jobs by what they have left and sets what each option is worth.
func (m *market) weigh() {
	order := slices.Clone(m.jobs)
	slices.Reverse(order) // of jobs that have as much left the first one weighs more
	slices.SortStableFunc(order, func(x, y *bidder) int { return cmp.Compare(m.ahead(y), m.ahead(x)) })
	longest := 1.0
	for _, b := range order {
		longest = math.Max(longest, b.soonest)
	}
	for behind, b := range order {
		weight := (1 + criticalShare*b.soonest/longest) * m.weight(b, (makespanJobs+stillToCome*float64(behind))/math.Max(b.useful, 1))
		for i := range b.options {
			o := &b.options[i]
			o.value = weight * o.up * m.spared(b, o)
		}
		m.terms(b)
	}
}

// spared is the part of the time for which an option will last that no restart takes. A job that was preempted pays a part of one, whatever it gets: where it
// came back for a minute, it would only restart. How little it has left must not keep it from its end.
func (m *market) spared(b *bidder, o *option) float64 {
	if o.held || len(b.gang.held) == 0 && b.gang.DeviceSeconds == 0 {
		return 1
	}
	restart := m.fleet.board.restartSeconds(b.gang.candidate)
	lasts := m.lasts(restart)
	if len(b.gang.held) == 0 {
		return 1 - comingBack*restart/lasts
	}
	return 1 - restart/math.Min(lasts, o.left+restart)
}

// lasts is how long a change is taken to last that costs a restart of so many seconds: until somebody comes who upsets it, which will take about as long as nobody
// has come by now.
func (m *market) lasts(restart float64) float64 {
	return max(horizonSeconds, 2*restart, min(m.quiet, mostRestarts*restart))
}

// ahead is what a job has left, for the order of the weights. One that waits, and would start for the sake of another's leaving, has to be shorter by more
// than what that costs and than predictions can be wrong: else equal jobs would take devices from each other in turns.
func (m *market) ahead(b *bidder) float64 {
	t := &m.fleet.state.Tuning
	if !t.AtEpochs || len(b.gang.held) > 0 {
		return b.single
	}
	return (1+t.Hysteresis)*b.single + m.fleet.board.restartSeconds(b.gang.candidate)
}

// weight is the least cost of a second's work on one device, where each device held delays the others so much.
func (m *market) weight(b *bidder, delay float64) float64 {
	age := m.fleet.age(b.gang)
	expected := (b.gang.DeviceSeconds + patienceSeconds*float64(m.fleet.total)) / (age + patienceSeconds)
	least, smallest := math.Inf(1), true
	for _, o := range b.options {
		if n := float64(o.devices); smallest || n <= expected {
			least, smallest = math.Min(least, (1+delay*o.occupied)/o.up), false
		}
	}
	return least
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
