package policy

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
)

// allocation is one decision: what each job would give for each allocation.
type allocation struct {
	*Round
	known *knowledge
	pools []pool
	jobs  []*candidate
	// tiers are the jobs by priority.
	tiers [][]*candidate
	// limits are what the jobs share: the devices of each pool, then the quotas of tenants, then the power budget.
	limits []limit
	quotas map[string]int
	power  int
	// quiet is for how long nobody has come.
	quiet   float64
	refused *cluster.Refusals[request]
}

// request holds the inputs of a search for a place besides the ledger.
type request struct {
	pool, devices, least, class int
	servers                     train.ServersSpec
}

// limit is something of which there is only so much, and its price.
type limit struct{ left, price float64 }

// pool is nodes that are alike: free devices are left on them, and at most roomiest on one of them.
type pool struct {
	*place.Pool
	free, roomiest int
}

// candidate is a job with the allocations that it may have.
type candidate struct {
	gang    *cluster.Gang
	options []option
	// chosen is its option; nil: none. It gets floor at least, if there is one.
	chosen, floor *option
	// fixed: it must not be changed now. late: it has waited for so long that it goes before others, with the devices that
	// it is due.
	fixed, late bool
	due         int
	// quota is the limit of its tenant.
	quota int
	// single is the time to its end, and base its goodput, on one device. Useful are the devices of all pools, counted by
	// their speed for it.
	single, base, useful float64
	// soonest is the time to its end on what is best for it: no plan can end it sooner.
	soonest float64
	// most is the largest worth of a device.
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
	// watts is the additional power of the devices.
	watts float64
}

// newAllocation is of the first priorities: of as many as fit, see admit.
func newAllocation(r *Round, known *knowledge, tiers [][]*cluster.Gang) *allocation {
	m := &allocation{Round: r, known: known, quiet: quiet(r), refused: cluster.NewRefusals[request](r.Ledger)}
	for _, alike := range r.Finder.Pools {
		p := pool{Pool: alike}
		for _, i := range p.Nodes {
			p.free, p.roomiest = p.free+r.Ledger.Free(i), max(p.roomiest, r.Ledger.Free(i))
		}
		m.pools = append(m.pools, p)
	}
	m.limit()
	m.admit(tiers)
	m.weigh()
	return m
}

// sizes are the numbers of devices that fill a node or nodes well, up to the most that a job can use. On small nodes
// all of them do.
func (p *pool) sizes(most int) []int {
	const fine = 8 // numbers of nodes up to which all are tried
	most = min(most, p.free)
	var sizes []int
	for n := 1; n <= min(p.PerNode, most); n++ {
		if n <= 4 || n%2 == 0 || n == most {
			sizes = append(sizes, n)
		}
	}
	if p.PerNode == 0 {
		return nil
	}
	for nodes := 2; nodes*p.PerNode <= most; nodes += max(1, nodes/fine) {
		sizes = append(sizes, nodes*p.PerNode)
	}
	if k := len(sizes); k > 0 && sizes[k-1] < most && most > p.PerNode {
		sizes = append(sizes, most)
	}
	return sizes
}

// candidate returns a job with its options.
func (m *allocation) candidate(g *cluster.Gang) *candidate {
	b := &candidate{gang: g, quota: none, fixed: m.fixed(g)}
	if k, bound := m.quotas[g.Spec.Tenant]; bound {
		b.quota = k
	}
	b.options = m.options(b)
	b.measure(m.pools)
	return b
}

// options lists what a job may have. A job that must not be changed has no choice.
func (m *allocation) options(b *candidate) []option {
	const usual = 24 // options in a pool
	all := make([]option, 0, min(usual, b.gang.Most-b.gang.Least+2)*len(m.pools))
	for k := range m.pools {
		all = m.optionsIn(all, b, k)
	}
	return all
}

// optionsIn adds those in one pool.
func (m *allocation) optionsIn(all []option, b *candidate, k int) []option {
	p, g := &m.pools[k], b.gang
	had := g.Held.Size()
	here := had > 0 && m.Finder.PoolOf[g.Held.Parts[0].Node] == k
	stuck := b.fixed || !g.SuitsKind(p.Memory, p.Class)
	missing := here && had >= g.Least && had <= g.Most
	curve := m.curve(g, p)
	for _, n := range m.sizes(g, p) {
		held := here && n == had
		if n < g.Least || stuck && !held {
			continue
		}
		o := option{pool: k, devices: n, nodes: (n + p.PerNode - 1) / p.PerNode}
		if held {
			o.nodes, o.held, missing = len(g.Held.Parts), true, false
		}
		if o.foresee(g, p, curve) {
			all = append(all, o)
		}
	}
	if o := (option{pool: k, devices: had, nodes: len(g.Held.Parts), held: true}); missing && o.foresee(g, p, curve) {
		all = append(all, o)
	}
	return all
}

// curve returns the speeds of a job whose batch is chosen with its devices, nil for others.
func (m *allocation) curve(g *cluster.Gang, p *pool) *speedCurve {
	if keepsBatch(g) {
		return nil
	}
	return m.known.curve(g, p.Model)
}

// foresee fills in how fast a job would be; false where it cannot run like that. A job that keeps its batch has no
// curve.
func (o *option) foresee(g *cluster.Gang, p *pool, curve *speedCurve) bool {
	o.watts = float64(o.devices) * p.Watts
	if curve == nil {
		const least = 1e-3
		o.left = math.Max(g.RemainingOn(o.devices, o.nodes), least)
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
func (m *allocation) sizes(g *cluster.Gang, p *pool) []int {
	most := min(g.Most, m.room(g, p))
	sizes := p.sizes(most)
	if at, listed := slices.BinarySearch(sizes, g.Least); !listed && g.Least <= most {
		sizes = slices.Insert(sizes, at, g.Least)
	}
	return sizes
}

// room is how many devices of a pool a job finds in one place, beside the parameter servers that it needs at least. A
// node is in one place, and if gangs may span nodes, the pool is.
func (m *allocation) room(g *cluster.Gang, p *pool) int {
	if g.Servers == nil && g.RAM == 0 {
		if m.Spans {
			return p.free
		}
		return p.roomiest
	}
	most, sum, cost := 0, 0, p.free
	for _, i := range p.Nodes {
		free := g.Within(m.Ledger.RAMLeft(i), max(m.Ledger.Free(i), 0))
		beside := free
		for beside > 0 && !m.Ledger.HasRoom(g, i, beside, g.ServersLeast()) {
			beside--
		}
		if most, sum = max(most, beside), sum+free; beside > 0 {
			cost = min(cost, free-beside)
		}
	}
	if m.Spans {
		return max(sum-cost, 0)
	}
	return most
}

// measure finds the speed on one device, on the model where that is fastest, and the speed-ups over it. A job that does
// not run on one device is measured by its smallest option.
func (b *candidate) measure(pools []pool) {
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
