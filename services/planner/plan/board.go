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
	// riders are jobs for whose devices others stand: nothing is decided of them here, but what is known of them counts.
	riders []*candidate
	// spans says that a gang may be spread over nodes.
	spans bool
	// links are those of the network that lose packets.
	links []lossyLink
	// allowance is what may still be given away, granted what could be in the beginning.
	allowance, granted allowance
	// total is the number of devices, used those that a policy has given away so far.
	total, used int
	// typicalSeconds is the median time of a whole training, of the jobs of which it is known.
	typicalSeconds float64
}

// node counts devices; which ones a job gets is settled in assign.
type node struct {
	id      train.NodeID
	devices []train.Device
	// model is that of the first device, watts what a device draws more when a job has it.
	model string
	watts float64
	// memory is that of the smallest device; 0 where it is unknown or does not matter. A job must fit the smallest one.
	memory int64
	// traits tells nodes apart by what jobs ask of them.
	traits traits
	// island tells nodes apart between which links lose packets; empty where none does.
	island string
	// used are given away, claimed are held by jobs that were not yet served.
	used, claimed int
	// busy marks devices on which an attempt is live.
	busy []bool
}

func (n *node) free() int      { return len(n.devices) - n.used }
func (n *node) unclaimed() int { return n.free() - n.claimed }

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
	// shunned are the lossy links that it leaves.
	shunned []*lossyLink
	// claim is how many devices of its base node the job claims as long as it is not served.
	claim int
	// head is the job behind which this one waits in line.
	head      *candidate
	predicted predicted
	// batch is chosen by policies that do so.
	batch train.Batch
	// wish is the place of what the job asks of its nodes among all that jobs ask for; nowhere where any node will do.
	wish int
}

func newBoard(s State, spans bool) *board {
	b := &board{tuning: s.Tuning.withDefaults(), spans: spans, granted: newAllowance(s), nodes: make([]node, 0, len(s.Nodes))}
	for _, n := range s.Nodes {
		b.nodes = append(b.nodes, newNode(n))
	}
	b.allowance = b.granted.clone()
	slices.SortFunc(b.nodes, func(x, y node) int {
		return cmp.Or(cmp.Compare(x.id, y.id), cmp.Compare(len(y.devices), len(x.devices)))
	})
	// A node that is listed twice has its devices once.
	b.nodes = slices.CompactFunc(b.nodes, func(x, y node) bool { return x.id == y.id })
	for i := range b.nodes {
		b.total += len(b.nodes[i].devices)
	}
	for _, j := range s.Jobs {
		switch {
		case j.CancelRequested:
			b.occupy(j)
		case j.Rides:
			b.occupy(j)
			b.riders = append(b.riders, newCandidate(j))
		default:
			j.Slow = j.avoided(s.Now)
			b.jobs = append(b.jobs, newCandidate(j))
		}
	}
	slices.SortFunc(b.jobs, func(x, y *candidate) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), x.SubmittedAt.Compare(y.SubmittedAt), cmp.Compare(x.ID, y.ID))
	})
	for i, c := range b.jobs {
		c.rank, c.turn = i, i
		b.occupy(c.Job)
	}
	b.readWishes(s.Nodes)
	b.readLinks(s.Links)
	taken := b.findHoldings()
	b.predict()
	b.leaveSlow(taken)
	b.leaveLinks(taken)
	return b
}

func newNode(n train.Node) node {
	devices := inOrder(n.Devices)
	fresh := node{id: n.ID, devices: devices, busy: make([]bool, len(devices))}
	if len(devices) > 0 {
		fresh.model = devices[0].Model
	}
	for i := range devices {
		d := &devices[i]
		fresh.watts = max(fresh.watts, d.BusyPower().Watts()-d.IdlePower().Watts())
		if m := int64(d.Memory); m > 0 && (fresh.memory == 0 || m < fresh.memory) {
			fresh.memory = m
		}
	}
	return fresh
}

// inOrder sorts devices by kind and number; mostly they are.
func inOrder(devices []train.Device) []train.Device {
	less := func(x, y train.Device) int {
		return cmp.Or(cmp.Compare(x.ID.Kind(), y.ID.Kind()), cmp.Compare(number(x.ID), number(y.ID)), cmp.Compare(x.ID, y.ID))
	}
	if slices.IsSortedFunc(devices, less) {
		return devices
	}
	return slices.SortedFunc(slices.Values(devices), less)
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
	c := &candidate{Job: j, min: max(spec.MinDevices, 1), wish: nowhere, first: place{node: nowhere}, base: place{node: nowhere}}
	c.max = max(spec.MaxDevices, c.min)
	if spec.Strategy == train.StrategyNone {
		c.max = c.min
	}
	return c
}

// clear takes back what was given in this round; jobs claim what they hold.
func (b *board) clear() {
	b.used = 0
	b.allowance = b.granted.clone()
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
		b.allowance.take(c.Spec.Tenant, -c.got.size, b.nodes[c.got.node].watts)
	}
	c.got = place{node: at, size: size}
	b.nodes[at].used += size
	b.used += size
	b.allowance.take(c.Spec.Tenant, size, b.nodes[at].watts)
}

// most is how many devices of a node a job may have at most, besides what it was given.
func (b *board) most(c *candidate, at int) int {
	return min(b.nodes[at].free(), b.allowance.most(c.Spec.Tenant, b.nodes[at].watts))
}

// fits says whether a job may run on a node at all.
func (b *board) fits(c *candidate, n *node) bool {
	return len(n.devices) >= c.min && c.suits(n.memory, n.traits)
}

// fitsMemory says whether devices of so much memory are enough; 0 is unknown.
func (c *candidate) fitsMemory(memory int64) bool {
	return memory == 0 || int64(c.Spec.EstimatedMemory()) <= memory
}

// keep gives a job back what it holds, or less of it; false where others were served with it.
func (b *board) keep(c *candidate, size int) bool {
	if !c.base.held() || b.most(c, c.base.node) < size {
		return false
	}
	b.give(c, c.base.node, size)
	return true
}

// find looks for a node with min devices that are not given away yet. It takes the one where the fewest must be taken from jobs that claim them,
// then one where no worker of it was slow, then the job's own, then for a job that can grow the emptiest, for another the fullest.
func (b *board) find(c *candidate) int {
	if b.total-b.used < c.min {
		return nowhere
	}
	b.waive(c, 0)
	best := nowhere
	var key [4]int
	for i := range b.nodes {
		n := &b.nodes[i]
		if b.most(c, i) < c.min || !b.fits(c, n) {
			continue
		}
		room := n.free()
		if c.max > c.min {
			room = -n.unclaimed()
		}
		slow, away := 0, 1
		if i == c.base.node {
			away = 0
		}
		if c.avoids(n) {
			slow = 1
		}
		k := [4]int{max(c.min-n.unclaimed(), 0), slow, away, room}
		if best == nowhere || slices.Compare(k[:], key[:]) < 0 {
			best, key = i, k
		}
	}
	return best
}

// assign settles which devices each job gets: as many as possible of those that it held in the beginning, then free ones, then those that others are
// leaving. Slow devices are replaced before newcomers come to what is free, for whom they are not slow.
func (b *board) assign() {
	taken := b.marks()
	for _, c := range b.jobs {
		for i := range c.got.spread() {
			part := c.got.part(i)
			part.devices = make([]int, 0, part.size)
			for k := range c.first.spread() {
				if had := c.first.part(k); had.node == part.node {
					part.devices = append(part.devices, had.devices[:min(part.size, had.size)]...)
				}
			}
			for _, d := range part.devices {
				taken[part.node][d] = true
			}
		}
	}
	b.replaceSlow(taken)
	for _, c := range b.jobs {
		for i := range c.got.spread() {
			b.complete(c.got.part(i), taken)
		}
	}
	b.replaceSlow(taken)
}

// complete adds devices to a part until there are enough.
func (b *board) complete(part *place, taken [][]bool) {
	for _, leaving := range []bool{false, true} {
		for d, busy := range b.nodes[part.node].busy {
			if len(part.devices) < part.size && busy == leaving && !taken[part.node][d] {
				taken[part.node][d] = true
				part.devices = append(part.devices, d)
			}
		}
	}
	slices.Sort(part.devices)
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
