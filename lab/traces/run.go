package traces

import (
	"cmp"
	"fmt"

	"github.com/switchyard-dl/switchyard/lab/baselines"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Rules hold the differences between the published simulators.
type Rules struct {
	// RestartSeconds is the price of each start; with PerApplication it and the slowdown are those of the profiles.
	RestartSeconds float64
	PerApplication bool
	// ShapeOnly lets a gang move without a restart if neither the number of devices on each node nor their model
	// changes.
	ShapeOnly bool
}

// UntypedRules are those of the simulator published with Pollux.
func UntypedRules() Rules { return Rules{RestartSeconds: 30} }

// TypedRules are those of Sia's simulator: each application has its own price of a restart and runs slower, and gangs
// move without a restart if only nodes change.
func TypedRules() Rules { return Rules{RestartSeconds: 30, PerApplication: true, ShapeOnly: true} }

// Config is all that a run depends on.
type Config struct {
	Applications map[string]*Application
	Workload     Workload
	Pools        []sim.Pool
	Policy       plan.Policy
	Rules        Rules
	// FixedBatch has every job keep the global batch that its user asked for.
	FixedBatch bool
	// IntervalSeconds is the time between decisions (default 60).
	IntervalSeconds float64
	Seed            uint64
	// Interference is the share of its speed that a gang over several nodes loses on a node with another such gang.
	Interference float64
	Tuning       plan.Tuning
	// Decide and Watch are those of sim.Config.
	Decide func(plan.State, plan.Policy) train.Plan
	Watch  func(sim.Tick) bool
}

// Run replays a workload.
func Run(c Config) (sim.Result, error) {
	s, err := c.Simulation()
	if err != nil {
		return sim.Result{}, err
	}
	return sim.Run(s)
}

// Simulation is the run as the simulator takes it. It must not run twice at the same time, since its jobs share what
// they have looked up.
func (c Config) Simulation() (sim.Config, error) {
	c.IntervalSeconds = cmp.Or(max(c.IntervalSeconds, 0), 60)
	c.Tuning.RestartSeconds = cmp.Or(c.Tuning.RestartSeconds, c.Rules.RestartSeconds)
	s := sim.Config{
		Workload: sim.Workload{Name: c.Workload.Name}, Nodes: sim.Nodes(c.Pools), Policy: c.Policy, IntervalSeconds: c.IntervalSeconds,
		State:  plan.State{Tuning: c.Tuning, IntervalSeconds: c.IntervalSeconds, Seed: c.Seed},
		AtOnce: true, ShapeOnly: c.Rules.ShapeOnly, Interference: c.Interference, Decide: c.Decide, Watch: c.Watch,
	}
	sources, err := c.sources()
	trace := baselines.Trace{}
	if reader, reads := c.Policy.(baselines.Reader); reads {
		s.Policy = reader.Read(trace)
	}
	for i, a := range c.Workload.Jobs {
		if err != nil {
			break
		}
		trace[a.Name] = sources[i].told
		s.Workload.Jobs = append(s.Workload.Jobs, sim.Arrival{
			Name: a.Name, Seconds: a.Seconds, Source: sources[i], Kind: fmt.Sprintf("%s/%d", a.Application, a.Batch),
		})
	}
	return s, err
}

// sources returns a source for each job, in the order of the workload.
func (c Config) sources() ([]*source, error) {
	apps := ownCaches(c.Applications)
	total := 0
	for _, p := range c.Pools {
		total += p.Nodes * p.Devices
	}
	if total == 0 {
		return nil, fmt.Errorf("simulate %s: the cluster has no device", c.Workload.Name)
	}
	sources := make([]*source, len(c.Workload.Jobs))
	for i, a := range c.Workload.Jobs {
		app, ok := apps[a.Application]
		if !ok {
			return nil, fmt.Errorf("simulate %s: job %s: no application %q", c.Workload.Name, a.Name, a.Application)
		}
		for _, p := range c.Pools {
			if _, ok := app.Steps[p.Model]; !ok {
				return nil, fmt.Errorf("simulate %s: job %s: no step times of %s on devices %q", c.Workload.Name, a.Name, a.Application, p.Model)
			}
		}
		sources[i] = newSource(&c, app, a, total)
	}
	return sources, nil
}

// ownCaches are the applications with look-ups of their own, so that simulations side by side share what was loaded.
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
