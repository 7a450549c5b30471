package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// Pool is nodes of one kind.
type Pool struct {
	Nodes, Devices int
	// Model is the kind of device; the traces have step times by it.
	Model  string
	Memory unit.Bytes
}

// Rules are what differs between the published simulators.
type Rules struct {
	// RestartSeconds is the price of each start; with PerApplication it and the slowdown are those of the profiles.
	RestartSeconds float64
	PerApplication bool
	// ShapeOnly lets a gang move without a restart as long as the devices on each node and their kind stay the same.
	ShapeOnly bool
}

// UntypedRules are those of the simulator published with Pollux, TypedRules those of Sia's.
func UntypedRules() Rules { return Rules{RestartSeconds: 30} }

// TypedRules price each application's restarts by itself and slow its steps down, and let gangs move without a restart where only nodes change.
func TypedRules() Rules { return Rules{RestartSeconds: 30, PerApplication: true, ShapeOnly: true} }

// Config is all that a run depends on.
type Config struct {
	Applications map[string]*Application
	Workload     Workload
	Pools        []Pool
	// Nodes, if there are any, are the cluster instead of Pools: those of a live one, there all the time but for their Absences. State is then what
	// such a planner is told at every decision beside the time, the nodes and the jobs.
	Nodes    []train.Node
	Absences []Absence
	State    plan.State
	Policy   plan.Policy
	Rules    Rules
	// IntervalSeconds is how far apart decisions are (default 60).
	IntervalSeconds float64
	Seed            uint64
	// Interference is the share of its speed that a gang over several nodes loses on a node with another such gang.
	Interference float64
	Tuning       plan.Tuning
	// Decide, if set, stands between the simulator and plan.Decide, to measure it; Watch is told of each tick and ends the run by false.
	Decide func(plan.State, plan.Policy) train.Plan
	Watch  func(Tick) bool
}

// Tick is the world after a decision.
type Tick struct {
	Seconds               float64
	Jobs, Active, Running int
	Done, BusyDevices     int
	// Plan is the decision; nil where no job was active.
	Plan *train.Plan
}

// longest bounds a run in virtual time: a policy that lets a job starve must not run for ever.
const longest = 400 * 24 * 3600

// world is a run in the making.
type world struct {
	Config
	// nodes are all that are ever there, present those of the moment; changesAt is when others are.
	nodes, present []train.Node
	changesAt      float64

	models map[train.NodeID]string
	total  int
	jobs   []*job
	now    float64
	memory string
	busy   float64
	tune   tuner
	// idle counts the decisions in a row that gave nothing to anybody.
	idle int
	// taught is what recorded jobs that have ended taught those of their signature.
	taught curve.Teachings
	// byID finds jobs.
	byID map[train.JobID]*job
	// activeSum adds up, tick by tick, how many jobs were active.
	active []activity
}

// activity is how many jobs were active during a tick that began at a time.
type activity struct{ seconds, jobs float64 }

// Run replays a workload.
func Run(c Config) (Result, error) {
	w, err := newWorld(c)
	if err != nil {
		return Result{}, err
	}
	for !w.finished() && !w.stalled() && w.now < longest && w.tick() {
	}
	return w.result(), nil
}

func newWorld(c Config) (*world, error) {
	if c.IntervalSeconds <= 0 {
		c.IntervalSeconds = 60
	}
	if c.Decide == nil {
		c.Decide = plan.Decide
	}
	c.Tuning.RestartSeconds = cmp.Or(c.Tuning.RestartSeconds, c.Rules.RestartSeconds)
	c.Applications = ownCaches(c.Applications)
	w := &world{Config: c, models: map[train.NodeID]string{}, byID: map[train.JobID]*job{}}
	w.build()
	w.attend()
	if w.total == 0 {
		return nil, fmt.Errorf("simulate %s: the cluster has no device", c.Workload.Name)
	}
	for _, a := range c.Workload.Jobs {
		j, err := w.newJob(a)
		if err != nil {
			return nil, err
		}
		w.jobs = append(w.jobs, j)
		w.byID[a.Name] = j
	}
	if t, ok := c.Policy.(plan.Tuner); ok {
		w.tune = func(j *job) train.Batch { return t.Tune(w.observe(j), j.devices(), len(j.shape), j.model) }
	}
	return w, nil
}

// ownCaches are the applications with look-ups of their own, so that runs side by side share what was loaded.
func ownCaches(shared map[string]*Application) map[string]*Application {
	own := make(map[string]*Application, len(shared))
	for name, app := range shared {
		mine := *app
		mine.Steps = make(map[string]*StepTimes, len(app.Steps))
		for model, s := range app.Steps {
			steps := *s
			steps.cache = map[cacheKey]StepTime{}
			mine.Steps[model] = &steps
		}
		own[name] = &mine
	}
	return own
}

// build makes the nodes.
func (w *world) build() {
	for _, n := range w.Nodes {
		if len(n.Devices) == 0 {
			continue
		}
		w.models[n.ID] = n.Devices[0].Model
		w.nodes = append(w.nodes, n)
		w.total += len(n.Devices)
	}
	if len(w.Nodes) > 0 {
		return
	}
	for _, p := range w.Pools {
		for range p.Nodes {
			n := train.Node{ID: train.NodeID(fmt.Sprintf("n%05d", len(w.nodes)))}
			for d := range p.Devices {
				n.Devices = append(n.Devices, train.Device{
					ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU, Model: p.Model, Memory: p.Memory,
				})
			}
			w.models[n.ID] = p.Model
			w.nodes = append(w.nodes, n)
			w.total += p.Devices
		}
	}
}

func (w *world) newJob(a Arrival) (*job, error) {
	if a.Recorded != nil {
		if !a.Recorded.known() {
			return nil, fmt.Errorf("simulate %s: job %s: nothing tells how fast it is", w.Workload.Name, a.Name)
		}
		return &job{Arrival: a, course: newRecordedCourse(a.Recorded), slowdown: 1, restart: a.Recorded.StartSeconds}, nil
	}
	app, ok := w.Applications[a.Application]
	if !ok {
		return nil, fmt.Errorf("simulate %s: job %s: no application %q", w.Workload.Name, a.Name, a.Application)
	}
	j := &job{
		Arrival: a, app: app, course: app, slowdown: 1, restart: w.Rules.RestartSeconds,
		known: map[seenKey]bool{}, stale: map[string]bool{}, speeds: map[string]train.Speed{},
	}
	if w.Rules.PerApplication {
		j.restart, j.slowdown = app.RestartSeconds, cmp.Or(app.Slowdown, 1)
	}
	for _, p := range w.Pools {
		if _, ok := app.Steps[p.Model]; !ok {
			return nil, fmt.Errorf("simulate %s: job %s: no step times of %s on devices %q", w.Workload.Name, a.Name, a.Application, p.Model)
		}
	}
	j.view = newJobView(j, w.total)
	first := w.Pools[0]
	j.oracle = oracleSteps(app, j.view.limits.On(first.Model), app.Steps[first.Model], a.Batch, first.Devices, w.total)
	return j, nil
}

func (w *world) finished() bool {
	return !slices.ContainsFunc(w.jobs, func(j *job) bool { return !j.done && !j.Background })
}

// patience is how many decisions in a row may give nothing to anybody although all jobs and nodes have come: more of them would not, either.
const patience = 1000

// stalled says whether the jobs that are left can never run here.
func (w *world) stalled() bool {
	hope := slices.ContainsFunc(w.jobs, func(j *job) bool { return j.Seconds > w.now || len(j.shape) > 0 })
	if hope || !math.IsInf(w.changesAt, 1) {
		w.idle = 0
	}
	w.idle++
	return w.idle > patience
}

// tick lets every job run for an interval and then decides anew, in the order of the published simulator; false ends the run.
func (w *world) tick() bool {
	slowed := w.slowed()
	active := 0.0
	for _, j := range w.jobs {
		if !j.done && j.Seconds <= w.now {
			active++
			w.busy += float64(j.devices()) * w.IntervalSeconds
		}
		before := j.now
		j.step(w.IntervalSeconds, slowed[j], w.tune)
		if j.done && j.shape != nil {
			w.busy -= float64(j.devices()) * (before + w.IntervalSeconds - j.completion)
			if c, recorded := j.course.(*recordedCourse); recorded {
				c.teach(w, j)
			}
			j.stop()
		}
		j.now = w.now + w.IntervalSeconds
	}
	w.active = append(w.active, activity{w.now, active})
	w.now += w.IntervalSeconds
	w.attend()
	state := w.state()
	t := Tick{Seconds: w.now, Jobs: len(w.jobs), Active: len(state.Jobs)}
	if len(state.Jobs) > 0 {
		decided := w.Decide(state, w.Policy)
		w.memory = decided.Memory
		if w.live() {
			w.follow(decided)
		} else {
			w.apply(decided)
		}
		t.Plan = &decided
	}
	return w.tell(t)
}

// tell completes the report of a tick for whoever watches.
func (w *world) tell(t Tick) bool {
	if w.Watch == nil {
		return true
	}
	for _, j := range w.jobs {
		if j.done {
			t.Done++
		}
		if n := j.devices(); n > 0 {
			t.Running++
			t.BusyDevices += n
		}
	}
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
		changed := len(j.parts) == 0 || w.moved(j, places)
		if !changed {
			j.parts = places
		}
		j.place(a, w.models[places[0].Node], changed, w.tune)
	}
}

// moved says whether a gang has to be started anew.
func (w *world) moved(j *job, places []train.Part) bool {
	if w.Rules.ShapeOnly && w.models[places[0].Node] == j.model {
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

// learn fits the step times of a job that has measured something new, as the profiler does.
func (w *world) learn(j *job) {
	for _, model := range sortedKeys(j.stale) {
		var seen []plan.Seen
		for _, s := range j.seen {
			if s.Model == model {
				seen = append(seen, s)
			}
		}
		j.speeds[model] = fit(w.Policy, seen)
	}
	clear(j.stale)
}

// fit is the policy's own way to learn, or that of the profiler.
func fit(p plan.Policy, seen []plan.Seen) train.Speed {
	if l, ok := p.(plan.Learner); ok {
		return l.Learn(seen)
	}
	samples := make([]curve.StepSample, len(seen))
	for i, s := range seen {
		samples[i] = curve.StepSample{Config: s.Config, StepSeconds: s.StepSeconds, Weight: 1}
	}
	speed, err := curve.FitStepTime(samples)
	if err != nil {
		return train.Speed{}
	}
	return speed
}
