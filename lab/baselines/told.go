package baselines

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Trace holds what a trace says about its jobs and no planner knows.
type Trace map[train.JobID]*Told

// Told is about one job.
type Told struct {
	// Devices is the size that its user asked for.
	Devices int
	// RestartSeconds is the price of a start.
	RestartSeconds float64
	// StepSeconds are the true step times at the requested batch on 1, 2, .. devices packed onto as few nodes as
	// possible; more are of no use. RemainingSteps is the true number of steps to the end at that batch. Only oracles
	// read them.
	StepSeconds    []float64
	RemainingSteps func(epochsDone int) float64
	// Truth is what Switchyard with an oracle reads.
	Truth policy.Truth
	// Agent is what the job's own agent has measured, for policies whose agents tune the batch.
	Agent Agent
}

// Agent tunes the batch of a job where it runs, as Pollux's does.
type Agent struct {
	Limits    func(model string) state.Limits
	OneDevice bool
	// Ran are the configurations that have run, Noise the gradient noise as last measured, Speeds the fits by model of
	// device.
	Ran    []train.Ran
	Noise  *train.Efficiency
	Speeds map[string]train.Speed
}

// Reader is a policy that reads what a trace says.
type Reader interface {
	Read(t Trace) policy.Policy
}

// Tuner is a policy whose agents fit step times in their own way and choose the batch of a running gang between
// decisions. All samples for Learn ran on one model of device.
type Tuner interface {
	Learn(ran []train.Ran) train.Speed
	Tune(a *Agent, devices, nodes int, model string) train.Batch
}

// requested makes a policy give jobs what their users ask for.
type requested struct {
	plain
	trace Trace
}

// Bounds are the devices that the user asks for.
func (p requested) Bounds(j *state.Job, spec train.Spec) (least, most int) {
	if told := p.trace[j.ID]; told != nil {
		n := max(told.Devices, 1)
		return n, n
	}
	return policy.Declared(j, spec)
}

// SwitchyardOracle is Switchyard with the truth in place of estimates.
type SwitchyardOracle struct{ policy.Switchyard }

// Name is switchyard-oracle.
func (SwitchyardOracle) Name() string { return policy.Switchyard{Oracle: noTruth}.Name() }

func noTruth(*state.Job) *policy.Truth { return nil }

// Read gives Switchyard the truth.
func (p SwitchyardOracle) Read(t Trace) policy.Policy {
	p.Oracle = func(j *state.Job) *policy.Truth {
		if told := t[j.ID]; told != nil {
			return &told.Truth
		}
		return nil
	}
	return p.Switchyard
}

// Read takes the requests.
func (p FIFO) Read(t Trace) policy.Policy { p.trace = t; return p }

// Read takes the requests and the future.
func (p SRTF) Read(t Trace) policy.Policy { p.trace = t; return p }

// Read takes the requests.
func (p DRF) Read(t Trace) policy.Policy { p.trace = t; return p }

// Read takes the requests.
func (p Tetris) Read(t Trace) policy.Policy { p.trace = t; return p }

// Read takes the requests.
func (p MaxThroughput) Read(t Trace) policy.Policy { p.trace = t; return p }

// Read takes the requests.
func (p Tiresias) Read(t Trace) policy.Policy { p.trace = t; return p }

// Read takes the future.
func (p Optimus) Read(t Trace) policy.Policy { p.trace = t; return p }

// Read takes what the jobs' agents have measured.
func (p Pollux) Read(t Trace) policy.Policy { p.trace = t; return p }
