package plan

import (
	"container/heap"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Optimus gives devices by marginal gain (Peng et al., EuroSys'18, section 4.1): each job gets min_devices in order, then the next device goes to the
// job whose remaining time it shortens most, as long as it shortens any. The dominant resource of one more worker is always one device, so dividing
// by it changes nothing. Gains of jobs with few observed epochs are scaled down. Unlike the paper's, the sizes are not changed every slot:
// a change must pay for the restarts that it causes (see pays), and none comes oftener than Tuning.MaxRestartsPerHour. Jobs of which little is known are
// put on configurations that teach most while devices are free (see explore). That is the form for back ends that run a job on one node
// (Tuning.OneNode); where it can start parameter servers and some job wants them, jobs have both and may span nodes (see crew).
type Optimus struct{}

// Name is optimus.
func (Optimus) Name() string { return "optimus" }

func (o Optimus) decide(s State) train.Plan {
	withServers := func(j Job) bool { return j.Spec.Strategy == train.StrategyParameterServer }
	if !s.Tuning.OneNode && slices.ContainsFunc(s.Jobs, withServers) {
		return decideCrews(s)
	}
	return settle(s, o)
}

func (Optimus) share(b *board) {
	b.shareByGain(b.gain)
	b.explore()
}

// shareByGain gives min devices to each job and then the rest by gain, which says what one more device is worth to a job of a size.
func (b *board) shareByGain(gain func(c *candidate, size int) float64) {
	// Still is the plan in which whoever holds devices keeps them.
	frozen := make([]bool, len(b.jobs))
	for _, c := range b.jobs {
		frozen[c.rank] = true
	}
	b.solve(frozen, gain)
	still := b.outcome()
	for _, c := range b.jobs {
		frozen[c.rank] = !c.rescalable || c.changeable()*c.remaining(c.base.size) <= b.tuning.RestartSeconds
	}
	for {
		b.clear()
		b.solve(frozen, gain)
		if !b.freeze(frozen) {
			break
		}
	}
	if moved := b.outcome(); !b.pays(still, moved) {
		b.restore(still)
	}
}

// solve gives min devices to each job in order and then the rest by marginal gain. Frozen jobs that hold devices keep their size.
func (b *board) solve(frozen []bool, gain func(*candidate, int) float64) {
	for _, c := range b.jobs {
		if c.base.held() && !frozen[c.rank] {
			b.waive(c, c.min)
		}
	}
	for _, tier := range b.tiers() {
		var waiting []*candidate
		for _, c := range tier {
			size := c.base.size
			if !frozen[c.rank] {
				size = c.min
			}
			if !b.keep(c, size) {
				waiting = append(waiting, c)
			}
		}
		for _, c := range waiting {
			if at := b.find(c); at != nowhere {
				b.give(c, at, c.min)
			}
		}
	}
	b.grow(frozen, gain)
}

// grow hands out what is left, one device at a time.
func (b *board) grow(frozen []bool, worth func(*candidate, int) float64) {
	var queue gains
	offer := func(c *candidate) {
		if c.got.size >= c.max || b.nodes[c.got.node].free() == 0 {
			return
		}
		if gain := worth(c, c.got.size); gain > 0 {
			queue = append(queue, offered{c, gain})
		}
	}
	for _, c := range b.jobs {
		mayGrow := !c.pinned && (!frozen[c.rank] || !c.base.held() || c.got.node != c.base.node)
		if c.got.held() && mayGrow {
			offer(c)
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		best := heap.Pop(&queue).(offered).job
		if b.nodes[best.got.node].free() == 0 {
			continue
		}
		b.give(best, best.got.node, best.got.size+1)
		before := len(queue)
		offer(best)
		if len(queue) > before {
			heap.Fix(&queue, before)
		}
	}
}

// gain is what one more device saves a job, in seconds.
func (b *board) gain(c *candidate, size int) float64 {
	gain := c.remaining(size) - c.remaining(size+1)
	if c.Model == nil || c.Model.EpochsSeen < b.tuning.YoungEpochs {
		gain *= b.tuning.YoungFactor
	}
	return gain
}

// freeze marks the jobs that would grow for less than their restart is worth; false where there are none.
func (b *board) freeze(frozen []bool) bool {
	found := false
	for _, c := range b.jobs {
		if frozen[c.rank] || !c.base.held() || c.got.node != c.base.node || c.got.size <= c.base.size {
			continue
		}
		if c.saves(c.base.size, c.got.size) <= b.tuning.Hysteresis*c.remaining(c.base.size)+b.tuning.RestartSeconds {
			frozen[c.rank], found = true, true
		}
	}
	return found
}

// outcome is what each job got, by rank.
func (b *board) outcome() []place {
	got := make([]place, len(b.jobs))
	for i, c := range b.jobs {
		got[i] = c.got
	}
	return got
}

func (b *board) restore(outcome []place) {
	b.clear()
	for i, c := range b.jobs {
		if outcome[i].held() && !c.pinned {
			b.give(c, outcome[i].node, outcome[i].size)
		}
	}
}

// pays says whether moved is worth more than still.
func (b *board) pays(still, moved []place) bool {
	choices := make([]choice, len(b.jobs))
	restarts := func(c *candidate, p place) bool {
		return c.base.held() && (p.node != c.base.node || p.size != c.base.size)
	}
	for i, c := range b.jobs {
		x := choice{priority: c.Priority, share: 1, restarts: restarts(c, moved[i]) && !restarts(c, still[i])}
		if c.base.held() {
			x.share = c.changeable()
		}
		for k, p := range []place{still[i], moved[i]} {
			if x.held[k] = p.held(); x.held[k] {
				x.seconds[k] = c.remaining(p.size)
			}
		}
		choices[i] = x
	}
	return b.tuning.pays(choices)
}

// choice is what two outcomes, the one that leaves things as they are first, mean for a job.
type choice struct {
	priority int
	held     [2]bool
	seconds  [2]float64 // to the job's end
	// restarts is set where only the second one restarts it, share the part of its time that the second one could still shorten.
	restarts bool
	share    float64
}

// pays says whether the second outcome is worth more: it serves more jobs of the highest priority in which the two differ, or it shortens the sum of all
// remaining times, the restarts included, by more than the hysteresis asks of the jobs that it restarts. Choices are ordered by priority.
func (t Tuning) pays(choices []choice) bool {
	served, saved, asked := 0, 0.0, 0.0
	for i, c := range choices {
		if served != 0 && c.priority < choices[i-1].priority {
			break
		}
		switch {
		case c.held[1] && !c.held[0]:
			served++
		case c.held[0] && !c.held[1]:
			served--
		case c.held[1]:
			saved += c.share * (c.seconds[0] - c.seconds[1])
			if c.restarts {
				saved -= t.RestartSeconds
				asked += t.Hysteresis * c.seconds[0]
			}
		}
	}
	if served != 0 {
		return served > 0
	}
	return saved > asked
}

// gains is a heap of offers: the largest gain first, then the job that is served first.
type gains []offered

type offered struct {
	job  *candidate
	gain float64
}

func (g gains) Len() int { return len(g) }
func (g gains) Less(i, j int) bool {
	if g[i].gain != g[j].gain {
		return g[i].gain > g[j].gain
	}
	return g[i].job.rank < g[j].job.rank
}
func (g gains) Swap(i, j int) { g[i], g[j] = g[j], g[i] }

// Push and Pop make gains a heap.Interface.
func (g *gains) Push(x any) { *g = append(*g, x.(offered)) }

// Pop takes the last one off.
func (g *gains) Pop() any {
	last := len(*g) - 1
	x := (*g)[last]
	*g = (*g)[:last]
	return x
}
