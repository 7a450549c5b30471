package traces

import (
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// source is a job of the traces: an application and what its user asks for.
type source struct {
	*Application
	config  *Config
	arrival Arrival
	spec    train.Spec
	request plan.Request
	limits  plan.Limits
	// startSeconds is the price of a start; slowdown divides the speed on every device.
	startSeconds, slowdown float64
	// oracle are the true step times of the requested batch on 1, 2, .. devices.
	oracle []float64
}

func newSource(c *Config, app *Application, a Arrival, total int) *source {
	l := app.limits()
	most := max(min(l.MaxBatch/l.MinLocal, total), 1)
	if app.OneDevice {
		most = 1
	}
	s := &source{
		Application: app, config: c, arrival: a,
		spec: train.Spec{
			Name: a.Application, BatchSize: ceil(float64(a.Batch) / float64(a.Devices)), TrainingSetSize: app.Training.samplesPerEpoch(),
			MaxEpochs: app.Profile.Epochs, MinDevices: 1, MaxDevices: most, Strategy: train.StrategyAllReduce,
		},
		request: plan.Request{Devices: a.Devices, GlobalBatch: a.Batch}, limits: l, startSeconds: c.Rules.RestartSeconds, slowdown: 1,
	}
	if c.Rules.PerApplication {
		s.startSeconds, s.slowdown = app.RestartSeconds, app.Slowdown
		if s.slowdown == 0 {
			s.slowdown = 1
		}
	}
	first := c.Pools[0]
	s.oracle = oracleSteps(app, l.On(first.Model), app.Steps[first.Model], a.Batch, first.Devices, total)
	return s
}

// Start begins the training for one run.
func (s *source) Start(*curve.SampleLibrary) (sim.Training, error) {
	t := &job{source: s, known: map[seenKey]bool{}, stale: map[string]bool{}, speeds: map[string]train.Speed{}}
	t.tuner, _ = s.config.Policy.(tuner)
	return t, nil
}

// tuner is a policy that also chooses the batch of a running job between decisions, after each epoch, as the job's own
// agent would.
type tuner interface {
	Tune(j plan.Job, devices, nodes int, model string) train.Batch
}

// learner is a policy with a fit of step times of its own; all of seen is on one model of device.
type learner interface {
	Learn(seen []plan.Seen) train.Speed
}

// job is the training of a source in one run.
type job struct {
	*source
	// tuner, if there is one, chooses the batch between decisions.
	tuner tuner
	batch train.Batch

	seen   []plan.Seen
	known  map[seenKey]bool
	noise  *train.Efficiency
	speeds map[string]train.Speed
	// stale are the models of device with measurements that no fit has taken in.
	stale map[string]bool
}

type seenKey struct {
	model string
	train.Config
}

// Kind is the application; jobs of traces share no devices.
func (j *job) Kind() curve.Kind { return curve.Kind{Family: j.spec.Name} }

// Epochs are those of the profile.
func (j *job) Epochs() int { return j.Profile.Epochs }

// End is in steps at the base batch.
func (j *job) End(epoch int) float64 { return j.Training.ends[epoch] }

// StartSeconds is that of the rules.
func (j *job) StartSeconds() float64 { return j.startSeconds }

// Lasts rounds to whole seconds, as the published simulator does.
func (j *job) Lasts(seconds float64) float64 { return math.RoundToEven(seconds) }

// Ended has nothing to do.
func (j *job) Ended(sim.Held) {}

// Adjust sets the batch for the present devices.
func (j *job) Adjust(h sim.Held, observe func() plan.Job) {
	n := h.Devices()
	switch {
	case n == 0:
	case h.Batch.LocalBatch > 0:
		j.batch = h.Batch
	case j.tuner != nil:
		j.batch = bound(j.tuner.Tune(observe(), n, len(h.Shape), h.Model), n, j.limits)
	default:
		j.batch = split(j.arrival.Batch, n, j.limits.On(h.Model))
	}
}

// Goodput is in steps at the base batch per second.
func (j *job) Goodput(h sim.Held) float64 {
	if h.Batch.LocalBatch > 0 {
		j.batch = h.Batch
	}
	t := j.Steps[h.Model].At(h.Shape, j.batch.LocalBatch)
	global := j.batch.Global(h.Devices())
	j.measure(h, t, global)
	return j.Training.gain(global, h.Epoch, j.Limits.BaseBatch) / t.With(j.batch.Accumulation) / j.slowdown
}

// measure is what the training code of a live job would report of this step.
func (j *job) measure(h sim.Held, t StepTime, global int) {
	j.noise = j.Training.observed(global, h.Epoch, j.Limits.BaseBatch)
	cfg := train.Config{Workers: h.Devices(), Nodes: len(h.Shape), LocalBatch: j.batch.LocalBatch}
	key := seenKey{h.Model, cfg}
	if j.known[key] {
		return
	}
	j.known[key], j.stale[h.Model] = true, true
	j.seen = append(j.seen, plan.Seen{
		Config: cfg, Model: h.Model, Shape: slices.Clone(h.Shape), StepSeconds: t.Step * j.slowdown, SyncSeconds: t.Sync * j.slowdown,
	})
}

// Observe adds what training code reports, the fits of a profiler, and what only oracles may read.
func (j *job) Observe(o *plan.Job, h sim.Held) {
	j.learn()
	o.Spec, o.Request, o.Limits, o.Signature = j.spec, &j.request, &j.limits, j.arrival.Application
	o.Progress, o.Seen, o.Noise, o.RestartSeconds, o.Speeds = h.Progress, j.seen, j.noise, j.startSeconds, maps.Clone(j.speeds)
	if o.Running != nil {
		o.Running.Spoke = true
	}
	o.Oracle = &plan.Oracle{
		RemainingSteps: j.remainingSteps(h.Epoch), StepSeconds: j.oracle, StepTime: j.trueStep,
		Gain: func(globalBatch int) float64 { return j.Training.gain(globalBatch, h.Epoch, j.Limits.BaseBatch) },
	}
}

// learn fits the step times of a job that has measured something new, as the profiler does.
func (j *job) learn() {
	for _, model := range sortedKeys(j.stale) {
		var seen []plan.Seen
		for _, s := range j.seen {
			if s.Model == model {
				seen = append(seen, s)
			}
		}
		j.speeds[model] = fit(j.config.Policy, seen)
	}
	clear(j.stale)
}

// fit is the policy's own way to learn, or that of the profiler.
func fit(p plan.Policy, seen []plan.Seen) train.Speed {
	if l, ok := p.(learner); ok {
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

// remainingSteps is the truth that only oracles see: the steps to the end at the requested batch.
func (j *job) remainingSteps(epoch int) float64 {
	last := j.Epochs() - 1
	if epoch >= last {
		return 1
	}
	return j.Training.iterations(j.arrival.Batch, last) - j.Training.iterations(j.arrival.Batch, epoch)
}

// trueStep is the time of a step on packed devices as it will be measured, and the time of the exchange in it.
func (j *job) trueStep(cfg train.Config, model string) (step, sync float64) {
	t := j.Steps[model].At(spreadOver(cfg.Workers, cfg.Nodes), cfg.LocalBatch)
	return t.Step * j.slowdown, t.Sync * j.slowdown
}

// AloneSeconds is on as many of the devices as the job's batch can use, of whichever pool is fastest.
func (j *job) AloneSeconds(_ []train.Node, devices int) float64 {
	least := math.Inf(1)
	for _, p := range j.config.Pools {
		single := &job{source: j.source, known: map[seenKey]bool{}, stale: map[string]bool{}}
		held := sim.Held{Model: p.Model, Shape: packed(min(devices, len(j.oracle), p.Nodes*p.Devices), p.Devices)}
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
