package traces

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/lab/baselines"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// source is a job of the traces: an application and what its user asks for.
type source struct {
	*Application
	config  *Config
	arrival Arrival
	spec    train.Spec
	limits  map[string]plan.Limits
	// startSeconds is the price of a start; slowdown divides the speed on every device.
	startSeconds, slowdown float64
	// told is what published policies may read.
	told *baselines.Told
}

func newSource(c *Config, app *Application, a Arrival, total int) *source {
	l := app.Limits
	most := max(min(l.MaxBatch/l.MinLocal, total), 1)
	if app.OneDevice {
		most = 1
	}
	s := &source{
		Application: app, config: c, arrival: a, limits: map[string]plan.Limits{},
		spec: train.Spec{
			Name: a.Application, Command: []string{a.Application}, TrainingSetSize: app.Training.samplesPerEpoch(), MaxEpochs: app.Profile.Epochs,
			MinDevices: 1, MaxDevices: most, Strategy: train.StrategyAllReduce, Launch: train.LaunchPerDevice,
			BatchSize: l.MaxLocal, GlobalBatchSize: l.BaseBatch, AdaptiveBatch: app.adaptive(),
		},
		startSeconds: c.Rules.RestartSeconds, slowdown: 1,
	}
	if c.FixedBatch {
		s.spec.AdaptiveBatch, s.spec.GlobalBatchSize = nil, a.Batch
	}
	for _, p := range c.Pools {
		s.limits[p.Model] = app.limitsOn(p.Model)
	}
	if c.Rules.PerApplication {
		s.startSeconds, s.slowdown = app.RestartSeconds, app.Slowdown
		if s.slowdown == 0 {
			s.slowdown = 1
		}
	}
	first := c.Pools[0]
	s.told = &baselines.Told{
		Devices: a.Devices, RestartSeconds: s.startSeconds, RemainingSteps: s.remainingSteps,
		StepSeconds: oracleSteps(app, s.limits[first.Model], app.Steps[first.Model], a.Batch, first.Devices, total),
		Truth: policy.Truth{
			StepTime: s.trueStep, Gain: func(batch, epoch int) float64 { return s.Training.gain(batch, epoch, s.Limits.BaseBatch) },
		},
	}
	return s
}

// Start begins the training for one run.
func (s *source) Start() (sim.Training, error) {
	s.told.Agent = baselines.Agent{Limits: func(model string) plan.Limits { return s.limits[model] }, OneDevice: s.spec.MaxDevices == 1, Speeds: map[string]train.Speed{}}
	t := &job{source: s, known: map[seenKey]bool{}, stale: map[string]bool{}}
	t.tuner, _ = s.config.Policy.(baselines.Tuner)
	return t, nil
}

// job is the training of a source in one run.
type job struct {
	*source
	// tuner, if there is one, chooses the batch between decisions.
	tuner baselines.Tuner
	batch train.Batch

	known map[seenKey]bool
	// stale are the models of device with measurements that no fit of the job's agent has taken in.
	stale map[string]bool
}

type seenKey struct {
	model string
	train.Config
}

// Spec is what the user submits.
func (j *job) Spec() train.Spec { return j.spec }

// Epochs are those of the profile.
func (j *job) Epochs() int { return j.Profile.Epochs }

// End is in steps at the base batch.
func (j *job) End(epoch int) float64 { return j.Training.ends[epoch] }

// StartSeconds is that of the rules.
func (j *job) StartSeconds() float64 { return j.startSeconds }

// Lasts rounds to whole seconds, as the published simulator does.
func (j *job) Lasts(seconds float64) float64 { return math.RoundToEven(seconds) }

// Opaque jobs do not exist in traces.
func (j *job) Opaque() bool { return false }

// AnyStep is true: in the published simulators jobs leave at any time.
func (j *job) AnyStep() bool { return true }

// BeatSteps is 1.
func (j *job) BeatSteps(sim.Held) int { return 1 }

// Adjust sets the batch for the present devices.
func (j *job) Adjust(h sim.Held) {
	n := h.Devices()
	switch {
	case n == 0:
	case h.Batch.LocalBatch > 0:
		j.batch = h.Batch
	case j.tuner != nil:
		j.learn()
		j.batch = bound(j.tuner.Tune(&j.told.Agent, n, len(h.Shape), h.Model), n, j.Limits)
	default:
		j.batch = split(j.arrival.Batch, n, j.limits[h.Model])
	}
}

// Goodput is in steps at the base batch per second.
func (j *job) Goodput(h sim.Held) float64 {
	if h.Batch.LocalBatch > 0 {
		j.batch = h.Batch
	}
	t := j.Steps[h.Model].At(h.Shape, j.batch.LocalBatch)
	global := j.batch.Global(h.Devices())
	if j.tuner != nil {
		j.measure(h, t, global)
	}
	return j.Training.gain(global, h.Epoch, j.Limits.BaseBatch) / t.With(j.batch.Accumulation) / j.slowdown
}

// Report is the heartbeat of one of the job's processes.
func (j *job) Report(h sim.Held) event.Stepped {
	t := j.Steps[h.Model].At(h.Shape, j.batch.LocalBatch)
	noise := j.Training.observed(j.batch.Global(h.Devices()), h.Epoch, j.Limits.BaseBatch)
	return event.Stepped{
		StepSeconds: t.With(j.batch.Accumulation) * j.slowdown, WaitSeconds: t.Sync * j.slowdown,
		Batch: j.batch, GradSquared: &noise.Square, GradVariance: new(noise.Variance * float64(j.Limits.BaseBatch)),
	}
}

// Ended reports no more than that.
func (j *job) Ended(sim.Held) event.EpochEnded { return event.EpochEnded{} }

// measure is what the job's own agent sees of this step.
func (j *job) measure(h sim.Held, t StepTime, global int) {
	agent := &j.told.Agent
	agent.Noise = j.Training.observed(global, h.Epoch, j.Limits.BaseBatch)
	cfg := train.Config{Workers: h.Devices(), Nodes: len(h.Shape), LocalBatch: j.batch.LocalBatch}
	key := seenKey{h.Model, cfg}
	if j.known[key] {
		return
	}
	j.known[key], j.stale[h.Model] = true, true
	agent.Ran = append(agent.Ran, train.Ran{Config: cfg, Device: h.Model, StepSeconds: t.Step * j.slowdown, SyncSeconds: t.Sync * j.slowdown})
}

// learn fits the step times of an agent that has measured something new.
func (j *job) learn() {
	for _, model := range sortedKeys(j.stale) {
		other := func(r train.Ran) bool { return r.Device != model }
		j.told.Agent.Speeds[model] = j.tuner.Learn(slices.DeleteFunc(slices.Clone(j.told.Agent.Ran), other))
	}
	clear(j.stale)
}

// remainingSteps is the truth that only oracles see: the steps to the end at the requested batch.
func (s *source) remainingSteps(epoch int) float64 {
	last := s.Profile.Epochs - 1
	if epoch >= last {
		return 1
	}
	return s.Training.iterations(s.arrival.Batch, last) - s.Training.iterations(s.arrival.Batch, epoch)
}

// trueStep is the time of a step on packed devices as it will be measured, and the time of the exchange in it.
func (s *source) trueStep(cfg train.Config, model string) (step, sync float64) {
	t := s.Steps[model].At(spreadOver(cfg.Workers, cfg.Nodes), cfg.LocalBatch)
	return t.Step * s.slowdown, t.Sync * s.slowdown
}

// AloneSeconds is on as many of the devices as the job's batch can use, of whichever pool is fastest.
func (j *job) AloneSeconds(_ []train.Node, devices int) float64 {
	least := math.Inf(1)
	for _, p := range j.config.Pools {
		single := &job{source: j.source}
		held := sim.Held{Model: p.Model, Shape: packed(min(devices, len(j.told.StepSeconds), p.Nodes*p.Devices), p.Devices)}
		least = min(least, sim.Alone(single, held, j.config.IntervalSeconds))
	}
	return least
}

// spreadOver is the shape of devices on a number of nodes, as even as can be.
func spreadOver(devices, nodes int) []int {
	shape := make([]int, nodes)
	for i := range shape {
		shape[i] = devices / nodes
		if i < devices%nodes {
			shape[i]++
		}
	}
	return shape
}

// oracleSteps are the true step times of the requested batch on 1, 2, .. devices packed onto nodes of one size.
func oracleSteps(app *Application, limits plan.Limits, steps *StepTimes, batch, perNode, most int) []float64 {
	useful := min(max(batch/limits.MinLocal, 1), most)
	if app.OneDevice {
		useful = 1
	}
	times := make([]float64, useful)
	for n := 1; n <= useful; n++ {
		b := split(batch, n, limits)
		if n == 1 && b.Accumulation == 0 {
			b = bound(train.Batch{LocalBatch: ceil(float64(batch) / 2), Accumulation: 1}, 1, limits)
		}
		times[n-1] = steps.At(packed(n, perNode), b.LocalBatch).With(b.Accumulation)
	}
	return times
}

// packed is the shape of a number of devices on as few nodes as possible.
func packed(devices, perNode int) []int {
	var shape []int
	for devices > 0 {
		shape = append(shape, min(devices, perNode))
		devices -= perNode
	}
	return shape
}
