package plan

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// board is the state in a form to work on: devices by number, jobs in the order in which they are served.
type board struct {
	tuning Tuning
	nodes  []node
	jobs   []*candidate
	// total is the number of devices, used those that a policy has given away so far.
	total, used int
	// typicalSeconds is the median remaining time of the jobs of which it is known.
	typicalSeconds float64
}

// node counts devices; which ones a job gets is settled in assign.
type node struct {
	id      train.NodeID
	devices []train.Device
	// memory is that of the smallest device; 0 where it is unknown or does not matter. A job must fit the smallest one.
	memory int64
	// used are given away, claimed are held by jobs that were not yet served.
	used, claimed int
	// busy marks devices on which an attempt is live.
	busy []bool
}

func (n *node) free() int      { return len(n.devices) - n.used }
func (n *node) unclaimed() int { return n.free() - n.claimed }

// nowhere is the node of a job that has none.
const nowhere = -1

// place is a number of devices on a node, and which ones once they are settled.
type place struct {
	node    int
	size    int
	devices []int
}

func (p place) held() bool { return p.node != nowhere }

// candidate is a job that wants devices.
type candidate struct {
	Job
	// rank is the place in order of priority and submission, turn the one in which the policy serves.
	rank, turn int
	min, max   int
	// first is what the job held when the decision began, base what it holds in this round, got what the policy gives it.
	first, base, got place
	// pinned: runs and cannot be asked to leave. rescalable: may be resized now.
	pinned, rescalable bool
	// movable is what rescalable was when the decision began. sampled: runs where it does to be learned about. replaced are the slow devices that it leaves.
	movable, sampled bool
	replaced         []replacement
	// claim is how many devices of its base node the job claims as long as it is not served.
	claim int
	// head is the job behind which this one waits in line.
	head      *candidate
	predicted predicted
}

func newBoard(s State) *board {
	b := &board{tuning: s.Tuning.withDefaults()}
	for _, n := range s.Nodes {
		b.nodes = append(b.nodes, newNode(n))
		b.total += len(n.Devices)
	}
	slices.SortFunc(b.nodes, func(x, y node) int { return cmp.Compare(x.id, y.id) })
	for _, j := range s.Jobs {
		if j.CancelRequested {
			b.occupy(j)
			continue
		}
		b.jobs = append(b.jobs, newCandidate(j))
	}
	slices.SortFunc(b.jobs, func(x, y *candidate) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), x.SubmittedAt.Compare(y.SubmittedAt), cmp.Compare(x.ID, y.ID))
	})
	for i, c := range b.jobs {
		c.rank, c.turn = i, i
		b.occupy(c.Job)
	}
	b.findHoldings()
	b.predict()
	return b
}

func newNode(n train.Node) node {
	devices := slices.Clone(n.Devices)
	slices.SortFunc(devices, func(x, y train.Device) int {
		return cmp.Or(cmp.Compare(x.ID.Kind(), y.ID.Kind()), cmp.Compare(number(x.ID), number(y.ID)), cmp.Compare(x.ID, y.ID))
	})
	fresh := node{id: n.ID, devices: devices, busy: make([]bool, len(devices))}
	for _, d := range devices {
		if m := int64(d.Memory); m > 0 && (fresh.memory == 0 || m < fresh.memory) {
			fresh.memory = m
		}
	}
	return fresh
}

// number orders cpu:2 before cpu:10.
func number(d train.DeviceID) int {
	if i, err := strconv.Atoi(d.Index()); err == nil {
		return i
	}
	return math.MaxInt
}

func newCandidate(j Job) *candidate {
	spec := j.Spec.WithDefaults()
	c := &candidate{Job: j, min: max(spec.MinDevices, 1), first: place{node: nowhere}, base: place{node: nowhere}}
	c.max = max(spec.MaxDevices, c.min)
	if spec.Strategy == train.StrategyNone {
		c.max = c.min
	}
	return c
}

// occupy marks the devices of a live attempt: whoever gets them next has to wait for it to leave.
func (b *board) occupy(j Job) {
	if j.Running == nil {
		return
	}
	for _, part := range j.Running.places() {
		if p, ok := b.locate(Holding{Node: part.Node, Devices: part.Devices}); ok {
			for _, d := range p.devices {
				b.nodes[p.node].busy[d] = true
			}
		}
	}
}

// locate finds a holding among the nodes; false where any of it is gone.
func (b *board) locate(h Holding) (place, bool) {
	at, found := slices.BinarySearchFunc(b.nodes, h.Node, func(n node, id train.NodeID) int { return cmp.Compare(n.id, id) })
	if !found || len(h.Devices) == 0 {
		return place{node: nowhere}, false
	}
	p := place{node: at, size: len(h.Devices)}
	for _, id := range h.Devices {
		d := slices.IndexFunc(b.nodes[at].devices, func(d train.Device) bool { return d.ID == id })
		if d < 0 || slices.Contains(p.devices, d) {
			return place{node: nowhere}, false
		}
		p.devices = append(p.devices, d)
	}
	slices.Sort(p.devices)
	return p, true
}

// findHoldings settles what each job holds. An attempt that cannot be asked to leave holds what it runs on; for all others the last plan
// counts. Where two jobs hold the same device, the one that cannot leave keeps it, else the one that is served first.
func (b *board) findHoldings() {
	taken := make([][]bool, len(b.nodes))
	for i := range b.nodes {
		taken[i] = make([]bool, len(b.nodes[i].devices))
	}
	hold := func(c *candidate, h Holding) {
		p, ok := b.locate(h)
		if !ok || p.size < c.min || p.size > c.max && !c.pinned {
			c.pinned = false
			return
		}
		for _, d := range p.devices {
			if taken[p.node][d] {
				c.pinned = false
				return
			}
		}
		for _, d := range p.devices {
			taken[p.node][d] = true
		}
		c.base, c.first = p, p
	}
	for _, c := range b.jobs {
		if r := c.Running; r != nil && !r.Spoke && !r.StopPending {
			c.pinned = true
			hold(c, r.Holding)
		}
	}
	for _, c := range b.jobs {
		if c.base.held() || c.Planned == nil {
			continue
		}
		hold(c, *c.Planned)
		r := c.Running
		c.rescalable = c.base.held() && r != nil && r.Spoke && !r.StopPending && r.Node == c.Planned.Node &&
			train.SameDevices(r.Devices, c.Planned.Devices) && r.Epochs >= 1 && r.Seconds >= b.tuning.MinRescaleSeconds &&
			c.RecentRestarts < b.tuning.MaxRestartsPerHour
		c.movable = c.rescalable
	}
}

// clear takes back what was given in this round; jobs claim what they hold.
func (b *board) clear() {
	b.used = 0
	for i := range b.nodes {
		b.nodes[i].used, b.nodes[i].claimed = 0, 0
	}
	for _, c := range b.jobs {
		c.got, c.head, c.claim = place{node: nowhere}, nil, 0
		if c.base.held() {
			c.claim = c.base.size
			b.nodes[c.base.node].claimed += c.claim
		}
	}
	for _, c := range b.jobs {
		if c.pinned {
			b.give(c, c.base.node, c.base.size)
		}
	}
}

// waive lowers the claim of a job that is not served yet.
func (b *board) waive(c *candidate, claim int) {
	if c.claim > claim {
		b.nodes[c.base.node].claimed -= c.claim - claim
		c.claim = claim
	}
}

// give serves a job: size devices of a node, in place of whatever it had been given in this round.
func (b *board) give(c *candidate, at, size int) {
	b.waive(c, 0)
	if c.got.held() {
		b.nodes[c.got.node].used -= c.got.size
		b.used -= c.got.size
	}
	c.got = place{node: at, size: size}
	b.nodes[at].used += size
	b.used += size
}

// fits says whether a job may run on a node at all.
func (b *board) fits(c *candidate, n *node) bool {
	need := int64(c.Spec.EstimatedMemory())
	return len(n.devices) >= c.min && (n.memory == 0 || need <= n.memory)
}

// keep gives a job back what it holds, or less of it; false where others were served with it.
func (b *board) keep(c *candidate, size int) bool {
	if !c.base.held() || b.nodes[c.base.node].free() < size {
		return false
	}
	b.give(c, c.base.node, size)
	return true
}

// find looks for a node with min devices that are not given away yet. It takes the one where the fewest must be taken from jobs that claim them,
// then the job's own, then for a job that can grow the emptiest, for another the fullest.
func (b *board) find(c *candidate) int {
	if b.total-b.used < c.min {
		return nowhere
	}
	b.waive(c, 0)
	best := nowhere
	var key [3]int
	for i := range b.nodes {
		n := &b.nodes[i]
		if n.free() < c.min || !b.fits(c, n) {
			continue
		}
		room := n.free()
		if c.max > c.min {
			room = -n.unclaimed()
		}
		away := 1
		if i == c.base.node {
			away = 0
		}
		k := [3]int{max(c.min-n.unclaimed(), 0), away, room}
		if best == nowhere || slices.Compare(k[:], key[:]) < 0 {
			best, key = i, k
		}
	}
	return best
}

// assign settles which devices each job gets: as many as possible of those that it held in the beginning, then free ones, then those that others are
// leaving.
func (b *board) assign() {
	taken := make([][]bool, len(b.nodes))
	for i := range b.nodes {
		taken[i] = make([]bool, len(b.nodes[i].devices))
	}
	for _, c := range b.jobs {
		c.got.devices = nil
		if c.got.held() && c.got.node == c.first.node {
			c.got.devices = slices.Clone(c.first.devices[:min(c.got.size, c.first.size)])
			for _, d := range c.got.devices {
				taken[c.got.node][d] = true
			}
		}
	}
	for _, c := range b.jobs {
		for _, wanted := range []bool{false, true} {
			if !c.got.held() {
				continue
			}
			for d, busy := range b.nodes[c.got.node].busy {
				if len(c.got.devices) < c.got.size && busy == wanted && !taken[c.got.node][d] {
					taken[c.got.node][d] = true
					c.got.devices = append(c.got.devices, d)
				}
			}
		}
		slices.Sort(c.got.devices)
	}
	b.replaceSlow(taken)
}

// stable says whether every job got what it holds.
func (b *board) stable() bool {
	return !slices.ContainsFunc(b.jobs, func(c *candidate) bool { return !c.unchanged() })
}

func (c *candidate) unchanged() bool { return c.got.node == c.base.node && c.got.size == c.base.size }

// apply makes what was given what is held. Whoever was changed is not changed again.
func (b *board) apply() {
	for _, c := range b.jobs {
		if !c.unchanged() {
			c.base, c.rescalable = c.got, false
		}
	}
}
