package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Switchyard is the project's own policy.
type Switchyard struct{}

// Name is switchyard.
func (Switchyard) Name() string { return "switchyard" }

func (p Switchyard) decide(s State) train.Plan { return allot(s, p) }

// Knobs are for experiments.
var Knobs = map[string]float64{"a": 0, "tau": 900, "fill": 1, "look": 0.3, "p": 0.7, "r": 0, "v": 1, "t0": 14400}

func (Switchyard) grant(f *fleet) {
	book := openBook(f)
	defer func() { f.memory = book.close() }()
	if len(f.gangs) == 0 {
		return
	}
	m := newMarket(f, book)
	m.clear()
	m.place()
}

// market is one decision: the bids of all jobs for the devices of each pool.
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
	// perNode is the size of its largest node, free its free devices.
	perNode, free int
	price         float64
}

// bidder is a job with what each allocation is worth to it.
type bidder struct {
	gang    *gang
	options []option
	// chosen is the place of the option it has; nowhere: none.
	chosen int
	// single is the time to its end on one device.
	single float64
	rank   float64
	behind float64
}

// option is an allocation that a job may have.
type option struct {
	pool, devices, nodes int
	// goodput is the progress per second with the best batch, value what it is worth per second.
	goodput, value float64
	// left is the time to the end with it.
	left  float64
	batch train.Batch
	held  bool
}

func newMarket(f *fleet, b *book) *market {
	m := &market{fleet: f, book: b}
	byModel := map[string]int{}
	for i := range f.nodes {
		n := &f.nodes[i]
		k, ok := byModel[n.model]
		if !ok {
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
	order := slices.Clone(m.jobs)
	key := func(b *bidder) float64 { return b.single }
	if Knobs["key"] == 1 {
		key = func(b *bidder) float64 {
			best := math.Inf(1)
			for _, o := range b.options {
				best = math.Min(best, o.left)
			}
			return best
		}
	}
	slices.SortStableFunc(order, func(x, y *bidder) int { return cmp.Compare(key(y), key(x)) })
	p := Knobs["p"]
	q := 1 / (1 - p)
	for i, b := range order {
		r := float64(i)
		b.rank = math.Pow(math.Pow(r+1, q)-math.Pow(r, q), 1-p)
		b.rank = math.Pow(b.rank, Knobs["r"])
		b.behind = float64(len(order) - 1 - i)
		b.behind = r
	}
	for _, b := range m.jobs {
		m.appraise(b, b.gang.workLeft())
	}
	return m
}

// sizes are the numbers of devices worth considering in a pool.
func (p *pool) sizes(most int) []int {
	most = min(most, p.free)
	var sizes []int
	for n := 1; n <= min(p.perNode, most); n++ {
		if p.perNode <= 4 || n <= 4 || n%2 == 0 {
			sizes = append(sizes, n)
		}
	}
	for n := 2 * p.perNode; n <= most; n += p.perNode * max(1, n/p.perNode/8) {
		sizes = append(sizes, n)
	}
	if k := len(sizes); k > 0 && sizes[k-1] < most && most > p.perNode {
		sizes = append(sizes, most)
	}
	return sizes
}

func (m *market) bid(g *gang) *bidder {
	b := &bidder{gang: g, chosen: nowhere, single: math.Inf(1)}
	heldPool, heldDevices := nowhere, width(g.held)
	if heldDevices > 0 {
		for k := range m.pools {
			if m.pools[k].model == m.fleet.nodes[g.held[0].node].model {
				heldPool = k
			}
		}
	}
	for k := range m.pools {
		p := &m.pools[k]
		curve := m.book.curve(g, p)
		for _, n := range p.sizes(g.most()) {
			nodes := (n + p.perNode - 1) / p.perNode
			o := option{pool: k, devices: n, nodes: nodes}
			if k == heldPool && n == heldDevices {
				o.nodes, o.held = len(g.held), true
			}
			o.goodput, o.batch = curve.best(g, o.devices, o.nodes)
			if o.goodput > 0 {
				o.left = curve.timeLeft(g, o.devices, o.nodes, o.goodput)
				if n == 1 {
					b.single = math.Min(b.single, o.left)
				}
				b.options = append(b.options, o)
			}
		}
		if k == heldPool && !b.hasHeld() {
			o := option{pool: k, devices: heldDevices, nodes: len(g.held), held: true}
			o.goodput, o.batch = curve.best(g, o.devices, o.nodes)
			o.left = curve.timeLeft(g, o.devices, o.nodes, o.goodput)
			b.options = append(b.options, o)
		}
	}
	return b
}

func (b *bidder) hasHeld() bool {
	for i := range b.options {
		if b.options[i].held {
			return true
		}
	}
	return false
}

// appraise sets the values.
func (m *market) appraise(b *bidder, left float64) {
	restart := m.fleet.state.Tuning.RestartSeconds
	single := 0.0
	for i := range b.options {
		if b.options[i].devices == 1 {
			single = math.Max(single, b.options[i].goodput)
		}
	}
	if single == 0 && len(b.options) > 0 {
		single = b.options[0].goodput / float64(b.options[0].devices)
		b.single = b.options[0].left * float64(b.options[0].devices)
	}
	weight := math.Pow(math.Max(b.single, 60), -Knobs["a"]) * b.rank
	if Knobs["v"] > 0 {
		weight = math.Inf(1)
		age := m.fleet.state.Now.Sub(b.gang.SubmittedAt).Seconds()
		t0 := Knobs["t0"]
		mean := (b.gang.DeviceSeconds + float64(m.fleet.total)*t0) / (age + t0)
		for _, o := range b.options {
			if float64(o.devices) > mean && o.devices > 1 {
				continue
			}
			up := b.up(o, single)
			weight = math.Min(weight, (1+b.behind/Knobs["v"]/float64(m.fleet.total)*float64(o.devices))/up)
		}
		weight *= math.Pow(math.Max(b.single, 60), -Knobs["a"])
	}
	for i := range b.options {
		o := &b.options[i]
		tau := Knobs["tau"]
		up := b.up(*o, single)
		if !o.held && len(b.gang.held) > 0 {
			horizon := math.Min(o.left+restart, tau)
			up *= 1 - restart/horizon
		}
		o.value = weight * up
	}
}

func (b *bidder) scale() float64 {
	if len(b.gang.held) == 0 {
		return 0
	}
	return 1
}

// workLeft is what the user declared less what is done, in steps at the base batch.
func (g *gang) workLeft() float64 {
	total := float64(g.Spec.TrainingSetSize) * float64(g.Spec.MaxEpochs) / float64(max(g.base(), 1))
	return math.Max(total-g.Progress, total/1000)
}

func (g *gang) base() int {
	if g.Limits != nil {
		return g.Limits.BaseBatch
	}
	return g.Spec.BatchSize
}

func (b *bidder) up(o option, single float64) float64 {
	// The speed over the time that the choice is expected to last.
	mix := math.Min(Knobs["look"], 1)
	return (1-mix)*o.goodput/single + mix*b.single/o.left
}
