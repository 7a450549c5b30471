package sharing

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

const (
	// watchSeconds is the time that two jobs share a device before their rates are known.
	watchSeconds = 60
	// returnSeconds is the time after which a job that ran out of memory may start again.
	returnSeconds = 60
	// moveSeconds is the work that an evicted job has to repeat.
	moveSeconds = 60
	// clockPrecision is the relative precision of virtual time. It is well above that of floating point, so that a
	// job ends when its work is done.
	clockPrecision = 1e-12
)

// Result is the result of a policy on a stream.
type Result struct {
	AvgJCTSeconds   float64 `json:"avg_jct_seconds"`
	P99JCTSeconds   float64 `json:"p99_jct_seconds"`
	MakespanSeconds float64 `json:"makespan_seconds"`
	// OutOfMemoryKills counts the starts beside another job that ran out of memory, CoLocations the others, Evictions
	// the newcomers that left again.
	OutOfMemoryKills int `json:"oom_kills"`
	CoLocations      int `json:"co_locations"`
	Evictions        int `json:"evictions"`
	// MeanSlowdown is a job's time on devices over its time alone, averaged over the jobs.
	MeanSlowdown float64 `json:"mean_slowdown"`
}

// placement is a job on a device, the first of two before the newcomer.
type placement struct {
	job     int
	since   float64
	watched bool
}

// run is the state of a simulation.
type run struct {
	jobs      []Job
	table     Table
	policy    Policy
	now       float64
	next      int       // the first job that has not arrived
	left      []float64 // seconds of work alone, by job
	held      []float64 // seconds on a device, by job
	ended     []float64
	devices   [][]placement
	queue     []int
	returning []float64 // by job: when it is back in the queue, 0 if it is not away
	apart     map[[2]int]bool
	// due is set when a job has arrived, come back, ended or been evicted: only then are jobs placed.
	due    bool
	result Result
}

// Run plays a stream on a number of equal devices.
func Run(jobs []Job, table Table, devices int, policy Policy) Result {
	r := &run{
		jobs: jobs, table: table, policy: policy, left: make([]float64, len(jobs)), held: make([]float64, len(jobs)),
		ended: make([]float64, len(jobs)), returning: make([]float64, len(jobs)), devices: make([][]placement, devices), apart: map[[2]int]bool{},
	}
	for i, j := range jobs {
		r.left[i] = j.AloneSeconds
	}
	for r.step() {
	}
	return r.summary()
}

// step goes to the next event and lets the policy act; false if no event is left.
func (r *run) step() bool {
	at := r.nextEvent()
	if math.IsInf(at, 1) {
		return false
	}
	for d, placed := range r.devices {
		for i, t := range placed {
			r.left[t.job] -= (at - r.now) * r.rate(d, i)
			r.held[t.job] += at - r.now
		}
	}
	r.now = at
	r.finish()
	r.watch()
	for r.next < len(r.jobs) && r.jobs[r.next].ArrivalSeconds <= r.now {
		r.queue, r.due = append(r.queue, r.next), true
		r.next++
	}
	for job, back := range r.returning {
		if back > 0 && back <= r.now {
			r.returning[job] = 0
			r.queue, r.due = slices.Insert(r.queue, 0, job), true
		}
	}
	if r.due {
		r.dispatch()
	}
	return true
}

func (r *run) nextEvent() float64 {
	at := math.Inf(1)
	if r.next < len(r.jobs) {
		at = r.jobs[r.next].ArrivalSeconds
	}
	for _, back := range r.returning {
		if back > 0 {
			at = min(at, back)
		}
	}
	for d, placed := range r.devices {
		for i, t := range placed {
			at = min(at, r.now+r.left[t.job]/r.rate(d, i))
			if len(placed) == 2 && i == 1 && !t.watched {
				at = min(at, t.since+watchSeconds)
			}
		}
	}
	return max(at, r.now)
}

// rate is the speed of job i of a device, as a part of its speed alone.
func (r *run) rate(device, i int) float64 {
	placed := r.devices[device]
	if len(placed) == 1 {
		return 1
	}
	return r.table.Rates[curve.KindPair{Self: r.jobs[placed[i].job].Kind, Beside: r.jobs[placed[1-i].job].Kind}]
}

func (r *run) finish() {
	done := r.now * clockPrecision // what is left must be more than the clock can tell, or time would stand still
	for d := range r.devices {
		r.devices[d] = slices.DeleteFunc(r.devices[d], func(t placement) bool {
			if r.left[t.job] > done {
				return false
			}
			r.ended[t.job], r.due = r.now, true
			return true
		})
	}
}

// watch reports to the policy the pairs that have shared a device for long enough.
func (r *run) watch() {
	for d, placed := range r.devices {
		if len(placed) < 2 || placed[1].watched || placed[1].since+watchSeconds > r.now {
			continue
		}
		placed[1].watched = true
		first, newcomer := placed[0].job, placed[1].job
		if r.policy.Watched(r.jobs[first].Kind, r.jobs[newcomer].Kind, r.rate(d, 0), r.rate(d, 1)) {
			continue
		}
		r.result.Evictions++
		r.left[newcomer] += moveSeconds
		r.apart[pairOf(first, newcomer)] = true
		r.devices[d] = placed[:1]
		r.queue, r.due = slices.Insert(r.queue, 0, newcomer), true
	}
}

func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// dispatch gives empty devices to the head of the queue, then asks the policy for every job that waits.
func (r *run) dispatch() {
	r.due = false
	for d := range r.devices {
		if len(r.devices[d]) == 0 && len(r.queue) > 0 {
			r.start(r.queue[0], d)
			r.queue = r.queue[1:]
		}
	}
	waiting := r.queue
	r.queue = nil
	for _, job := range waiting {
		if !r.join(job) {
			r.queue = append(r.queue, job)
		}
	}
}

// join starts a job beside another if the policy wants it; true when it left the queue.
func (r *run) join(job int) bool {
	var running []curve.Kind
	var at []int
	for d, placed := range r.devices {
		if len(placed) == 1 && !r.apart[pairOf(job, placed[0].job)] {
			running, at = append(running, r.jobs[placed[0].job].Kind), append(at, d)
		}
	}
	if len(running) == 0 {
		return false
	}
	i := r.policy.Choose(r.jobs[job].Kind, running)
	if i < 0 {
		return false
	}
	kind := r.jobs[job].Kind
	if r.table.Rates[curve.KindPair{Self: kind, Beside: running[i]}] == 0 || r.table.Rates[curve.KindPair{Self: running[i], Beside: kind}] == 0 {
		r.result.OutOfMemoryKills++
		r.apart[pairOf(job, r.devices[at[i]][0].job)] = true
		r.returning[job] = r.now + returnSeconds
		r.policy.OutOfMemory(running[i], kind)
		return true
	}
	r.result.CoLocations++
	r.start(job, at[i])
	return true
}

func (r *run) start(job, device int) {
	r.devices[device] = append(r.devices[device], placement{job: job, since: r.now})
}

func (r *run) summary() Result {
	s := r.result
	times := make([]float64, len(r.jobs))
	for i, j := range r.jobs {
		times[i] = r.ended[i] - j.ArrivalSeconds
		s.AvgJCTSeconds += times[i] / float64(len(r.jobs))
		s.MeanSlowdown += r.held[i] / j.AloneSeconds / float64(len(r.jobs))
		s.MakespanSeconds = max(s.MakespanSeconds, r.ended[i])
	}
	slices.Sort(times)
	s.P99JCTSeconds = sim.Percentile(times, 0.99)
	return s
}
