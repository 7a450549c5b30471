// Package sim runs jobs in virtual time around the same plan.Decide as the live planner: the loop of decisions, what
// holds which devices, and recorded jobs of a live cluster. It opens no file and reads no clock.
package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

// Config is all that a run depends on.
type Config struct {
	Workload Workload
	// Nodes are all that are ever there, but for their Absences.
	Nodes    []train.Node
	Absences []Absence
	// State is what the planner knows at every decision, apart from the time, the nodes and the jobs.
	State  plan.State
	Policy plan.Policy
	// IntervalSeconds is the time between decisions (default 60).
	IntervalSeconds float64
	// AtOnce carries out a plan at once, in the middle of epochs, as the published simulators do. Otherwise a job
	// leaves at the end of an epoch and starts when all that it was given is free, as under executors.
	AtOnce bool
	// ShapeOnly, with AtOnce, lets a gang move without a restart if neither the number of devices on each node nor
	// their model changes.
	ShapeOnly bool
	// Interference is the share of its speed that a gang over several nodes loses on a node with another such gang.
	Interference float64
	// Show, if set, sees the records of each decision.
	Show func(records.Records)
	// Decide, if set, stands between the simulator and plan.Decide, to measure it. Watch sees each tick and ends the
	// run by false.
	Decide func(plan.State, plan.Policy) train.Plan
	Watch  func(Tick) bool
}

// Tick is the world after a decision.
type Tick struct {
	Seconds               float64
	Jobs, Active, Running int
	Done, BusyDevices     int
	// Plan is the decision; nil if no job was active.
	Plan *train.Plan
}

// Longest bounds a run in virtual time, in seconds: a policy that lets a job starve must not run for ever.
const Longest = 400 * 24 * 3600

// world is a run in progress.
type world struct {
	Config
	// nodes are all nodes of the run, present the nodes that are there now until changesAt.
	nodes, present []train.Node
	changesAt      float64

	firsts  map[train.NodeID]train.Device
	devices map[deviceID]device
	total   int
	// guessed is the interference without a measurement, by driver.
	guessed map[string]*curve.Interference
	jobs    []*job
	byID    map[train.JobID]*job
	now     float64
	// last is the newest plan.
	last train.Plan
	// busy is device time, in seconds.
	busy float64
	// idle counts the decisions in a row that gave nothing to any job.
	idle int
	// usage is what tenants have used, counted if any has shares.
	usage records.Usage
	// library is what jobs teach those of their family.
	library learn.Library
	// activity is how many jobs were active, tick by tick.
	activity []activity
}

// activity is how many jobs were active during a tick that began at a time.
type activity struct{ seconds, jobs float64 }

// Run plays a workload to its end.
func Run(c Config) (Result, error) {
	w, err := newWorld(c)
	if err != nil {
		return Result{}, err
	}
	for !w.finished() && !w.stalled() && w.now < Longest && w.tick() {
	}
	return w.result(), nil
}

func newWorld(c Config) (*world, error) {
	c.IntervalSeconds = cmp.Or(max(c.IntervalSeconds, 0), 60)
	if c.Decide == nil {
		c.Decide = plan.Decide
	}
	w := &world{
		Config: c, firsts: map[train.NodeID]train.Device{}, byID: map[train.JobID]*job{},
		devices: map[deviceID]device{}, guessed: map[string]*curve.Interference{},
	}
	for _, n := range c.Nodes {
		if len(n.Devices) == 0 {
			continue
		}
		w.firsts[n.ID] = n.Devices[0]
		w.nodes = append(w.nodes, n)
		w.total += len(n.Devices)
		for i := range n.Devices {
			d := &n.Devices[i]
			w.devices[deviceID{n.ID, d.ID}] = device{d.Memory, curve.InterferenceKey(d), d.Driver}
		}
	}
	w.State.EnergyQuotas = nil // a run draws no energy
	w.usage.At, w.usage.HalfLife = at(0), time.Duration(w.State.Tuning.WithDefaults().UsageHalfLifeSeconds*float64(time.Second))
	// Interference caches its predictions, and other runs may have the same state.
	w.State.Interference = maps.Clone(w.State.Interference)
	for key, known := range w.State.Interference {
		w.State.Interference[key] = known.Clone()
	}
	w.attend()
	if w.total == 0 {
		return nil, fmt.Errorf("simulate %s: the cluster has no device", c.Workload.Name)
	}
	for _, a := range c.Workload.Jobs {
		training, err := a.Source.Start()
		if err != nil {
			return nil, fmt.Errorf("simulate %s: job %s: %w", c.Workload.Name, a.Name, err)
		}
		j := &job{Arrival: a, training: training, spec: training.Spec(), atOnce: c.AtOnce}
		j.own = curve.KindOf(j.spec)
		w.jobs = append(w.jobs, j)
		w.byID[a.Name] = j
	}
	return w, nil
}

func (w *world) finished() bool {
	return !slices.ContainsFunc(w.jobs, func(j *job) bool { return !j.done && !j.Background })
}

// patience is how many decisions in a row may give nothing to any job after all jobs and nodes have come: more of
// them would not, either.
const patience = 1000

// stalled reports whether the jobs that are left can never run here.
func (w *world) stalled() bool {
	hope := slices.ContainsFunc(w.jobs, func(j *job) bool { return j.Seconds > w.now || len(j.shape) > 0 })
	if hope || !math.IsInf(w.changesAt, 1) {
		w.idle = 0
	}
	w.idle++
	return w.idle > patience
}

// tick lets every job run for an interval and then decides again, in the order of the simulator published with
// Pollux; false ends the run.
func (w *world) tick() bool {
	held := w.inUse()
	slowed, rates := w.slowed(), w.rates(held)
	active := 0.0
	for _, j := range w.jobs {
		occupied := j.occupied(held)
		if !j.done && j.Seconds <= w.now {
			active++
			w.busy += occupied * w.IntervalSeconds
		}
		before, rate := j.now, 1-slowed[j]
		if beside, shares := rates[j]; shares {
			rate *= beside
		}
		j.step(w.IntervalSeconds, rate)
		if j.done && j.shape != nil {
			w.busy -= occupied * (before + w.IntervalSeconds - j.completion)
			j.stop()
		}
		j.now = w.now + w.IntervalSeconds
	}
	w.activity = append(w.activity, activity{w.now, active})
	w.now += w.IntervalSeconds
	w.attend()
	for _, j := range w.jobs {
		if j.learned == nil && j.Seconds <= w.now {
			w.admit(j)
		}
	}
	w.teach()
	state := w.state()
	t := Tick{Seconds: w.now, Jobs: len(w.jobs), Active: len(state.Jobs)}
	if len(state.Jobs) > 0 {
		decided := w.Decide(state, w.Policy)
		w.last = decided
		if w.AtOnce {
			w.apply(decided)
		} else {
			w.follow(decided)
		}
		t.Plan = &decided
	}
	return w.report(t)
}

// report completes a tick for Watch.
func (w *world) report(t Tick) bool {
	if w.Watch == nil {
		return true
	}
	for _, j := range w.jobs {
		if j.done {
			t.Done++
		}
		if len(j.parts) > 0 {
			t.Running++
		}
	}
	t.BusyDevices = len(w.inUse())
	return w.Watch(t)
}

// slowed is the interference that each gang over several nodes suffers.
func (w *world) slowed() map[*job]float64 {
	if w.Interference <= 0 {
		return nil
	}
	gangs := map[train.NodeID][]*job{}
	for _, j := range w.jobs {
		for _, p := range j.parts {
			if len(j.parts) > 1 {
				gangs[p.Node] = append(gangs[p.Node], j)
			}
		}
	}
	slowed := map[*job]float64{}
	for _, together := range gangs {
		for _, j := range together {
			if len(together) > 1 {
				slowed[j] = w.Interference
			}
		}
	}
	return slowed
}

// apply carries out a plan at once.
func (w *world) apply(p train.Plan) {
	given := make(map[train.JobID]train.Allocation, len(p.Allocations))
	for _, a := range p.Allocations {
		given[a.Job] = a
	}
	for _, j := range w.jobs {
		if j.done {
			continue
		}
		a, ok := given[j.Name]
		if !ok {
			j.stop()
			continue
		}
		places := a.Places()
		j.batch = a.Batch
		if len(j.parts) == 0 || w.moved(j, places) {
			j.start(places, w.firsts[places[0].Node].Model)
		} else {
			j.parts = places
		}
	}
}

// moved reports whether a gang has to start again.
func (w *world) moved(j *job, places []train.Part) bool {
	if w.ShapeOnly && w.firsts[places[0].Node].Model == j.device {
		sizes := make([]int, len(places))
		for i, p := range places {
			sizes[i] = len(p.Devices)
		}
		return !slices.Equal(slices.Sorted(slices.Values(sizes)), slices.Sorted(slices.Values(j.shape)))
	}
	return !slices.EqualFunc(j.parts, places, func(x, y train.Part) bool { return x.Node == y.Node && len(x.Devices) == len(y.Devices) })
}

// at is a moment of the run as a time.
func at(seconds float64) time.Time {
	return time.Unix(0, int64(seconds*1e9)).UTC()
}
