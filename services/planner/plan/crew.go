package plan

import (
	"cmp"
	"container/heap"
	"math"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A crew is what a job runs as: workers, each with a device, and where its strategy asks for them parameter servers, each with cores and memory of a node.
// Crews may span nodes. How many of each a crew gets is decided by the cluster's totals, where they go after that (see spread.go); a crew that finds no
// place for all is made smaller.
type crew struct {
	*candidate
	// servers is nil for a job without parameter servers.
	servers *train.ServersSpec
	// base and got are what it holds and what it is given.
	base, got roles
	// held and placed are where, initial is what it held when the decision began.
	held, placed, initial []berth
	// epochsLeft are expected where there is a model.
	epochsLeft float64
	// settled: it keeps its size in this round.
	settled bool
	// misfit: not even with all nodes idle would there be a place for its floor.
	misfit bool
	// homeless is how often no place was found for it in this round, not even for its floor.
	homeless int
}

// roles counts the tasks of a crew.
type roles struct{ workers, servers int }

func (r roles) none() bool { return r.workers == 0 }

// berth is the part of a crew on one node; devices are by number, once they are settled.
type berth struct {
	node int
	roles
	devices []int
}

// crews is a decision under way.
type crews struct {
	*board
	all []*crew
	// rooms are what each node has, total what they have together.
	rooms []room
	total room
	// largest is the number of devices of the largest node.
	largest int
}

// floor is the least that a crew runs with.
func (c *crew) floor() roles {
	r := roles{workers: c.min}
	if c.servers != nil {
		r.servers = 1
	}
	return r
}

// needs is what so many tasks of a crew take up, where devices are CPU slots or not.
func (c *crew) needs(r roles, slots bool) room {
	n := room{devices: r.workers}
	if slots { // a CPU slot is a core, and its memory the machine's
		n.cores, n.memory = r.workers, int64(r.workers)*int64(c.Spec.EstimatedMemory())
	}
	if c.servers != nil {
		n.cores += r.servers * c.servers.Cores
		n.memory += int64(r.servers) * c.servers.MemoryMiB << 20
	}
	return n
}

// dominant is the largest share of the cluster that a task takes of any resource. Optimus divides by the amount of that resource; the share is the same but
// for a factor, and can be compared where one task takes mostly cores and another a device.
func (d *crews) dominant(c *crew, r roles) float64 { return c.needs(r, d.total.slots).shareOf(d.total) }

// remaining is the predicted time to the end of the job with such a crew, in seconds.
func (d *crews) remaining(c *crew, r roles) float64 {
	config := func(r roles) train.Config {
		nodes := (r.workers + d.largest - 1) / max(d.largest, 1)
		return train.Config{Workers: r.workers, Servers: r.servers, Nodes: max(nodes, 1), LocalBatch: c.Spec.BatchSize}
	}
	if c.predicted.source == fromModel {
		each, _ := c.Model.EpochSecondsOn(config(r), c.Spec.StepsIn)
		return bounded(c.epochsLeft * each)
	}
	if c.servers == nil {
		return c.candidate.remaining(r.workers)
	}
	// The prior only says how the step changes with the crew; the time itself is guessed.
	batch := max(c.Spec.BatchSize, 1)
	shape := curve.PriorServers(batch, c.servers.Async)
	epoch := func(r roles) float64 {
		on := config(r)
		on.LocalBatch = batch
		return shape.StepSeconds(on, c.servers.Async) * c.Spec.StepsIn(on)
	}
	return bounded(c.predicted.guess * epoch(r) / epoch(c.floor()))
}

// solve gives each crew its floor, in order of priority and within one those first that hold something; settled ones keep what they hold. What is left goes
// task by task to where it gains most for its dominant share (section 4.1).
func (d *crews) solve() {
	left := d.total
	for _, c := range d.all {
		c.got = roles{}
	}
	serve := func(c *crew) {
		if c.misfit || c.homeless > 1 {
			return
		}
		for _, want := range []roles{c.wanted(), c.floor()} {
			if need := c.needs(want, d.total.slots); c.got.none() && left.has(need) {
				c.got = want
				left.take(need)
			}
		}
	}
	for from := 0; from < len(d.all); {
		to := from
		for ; to < len(d.all) && d.all[to].Priority == d.all[from].Priority; to++ {
			if !d.all[to].base.none() {
				serve(d.all[to])
			}
		}
		for _, c := range d.all[from:to] {
			if c.base.none() {
				serve(c)
			}
		}
		from = to
	}
	d.grow(left)
}

func (c *crew) wanted() roles {
	if c.settled && !c.base.none() {
		return c.base
	}
	return c.floor()
}

// grow hands out what is left, one task at a time.
func (d *crews) grow(left room) {
	var queue taskOffers
	offer := func(c *crew) {
		if c.got.none() || c.settled && !c.base.none() {
			return
		}
		if task, gain := d.best(c, left); gain > 0 {
			heap.Push(&queue, taskOffer{c, task, gain})
		}
	}
	for _, c := range d.all {
		offer(c)
	}
	for len(queue) > 0 {
		o := heap.Pop(&queue).(taskOffer)
		// What does not fit any more may be replaced by the crew's other kind of task.
		if need := o.crew.needs(o.task, d.total.slots); left.has(need) {
			left.take(need)
			o.crew.got = o.crew.got.plus(o.task)
		}
		offer(o.crew)
	}
}

func (r roles) plus(o roles) roles { return roles{r.workers + o.workers, r.servers + o.servers} }

// best is the task that gains a crew most for its dominant share, among those that fit, and the gain.
func (d *crews) best(c *crew, left room) (roles, float64) {
	var tasks []roles
	if c.got.workers < c.max {
		tasks = append(tasks, roles{workers: 1})
	}
	if c.servers != nil && c.got.servers < c.servers.Max {
		tasks = append(tasks, roles{servers: 1})
	}
	task, most := roles{}, 0.0
	for _, t := range tasks {
		if !left.has(c.needs(t, d.total.slots)) {
			continue
		}
		gain := (d.remaining(c, c.got) - d.remaining(c, c.got.plus(t))) / math.Max(d.dominant(c, t), 1e-9)
		if gain > most {
			task, most = t, gain
		}
	}
	if c.Model == nil || c.Model.EpochsSeen < d.tuning.YoungEpochs {
		most *= d.tuning.YoungFactor
	}
	return task, most
}

// taskOffers is a heap: the largest gain first, then the crew that is served first.
type taskOffers []taskOffer

type taskOffer struct {
	crew *crew
	task roles
	gain float64
}

func (q taskOffers) Len() int { return len(q) }
func (q taskOffers) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[j].gain, q[i].gain), cmp.Compare(q[i].crew.rank, q[j].crew.rank)) < 0
}
func (q taskOffers) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push and Pop make it a heap.Interface.
func (q *taskOffers) Push(x any) { *q = append(*q, x.(taskOffer)) }

// Pop takes the last one off.
func (q *taskOffers) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
