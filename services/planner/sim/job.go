package sim

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// job is a job of the workload in the making.
type job struct {
	Arrival
	course course
	// app is the course of a job of the traces.
	app *Application
	// slowdown divides its speed on every device; restart is the price of a start.
	slowdown, restart float64

	// parts are what it holds, shape the devices on each node in order of ranks, model the kind of all of them.
	parts []train.Part
	shape []int
	model string
	batch train.Batch
	// chosen says that the plan chose the batch.
	chosen bool
	// planned is what the last plan gave a recorded job; leaving that it was asked to leave what it holds, which it does at its epoch's end.
	planned *plan.Holding
	leaving bool
	// left are the times at which it was made to leave within the last hour.
	left []float64

	now, rescale float64
	epoch        int
	progress     float64
	done         bool
	completion   float64

	starts                int
	startedAt             float64
	startedEpoch          int
	deviceSeconds, worked float64

	seen   []plan.Seen
	known  map[seenKey]bool
	noise  *train.Efficiency
	speeds map[string]train.Speed
	// stale are the models of device with news that no fit has taken in.
	stale map[string]bool

	oracle []float64
	view   *jobView
}

type seenKey struct {
	model string
	train.Config
}

func (j *job) devices() int {
	sum := 0
	for _, n := range j.shape {
		sum += n
	}
	return sum
}

// tuner lets a policy choose the batch of a job between decisions.
type tuner func(j *job) train.Batch

// adjust sets the batch for the present devices.
func (a *Application) adjust(j *job, tune tuner) {
	n := j.devices()
	switch {
	case n == 0 || j.chosen:
	case tune != nil:
		j.batch = bound(tune(j), n, j.view.limits)
	default:
		j.batch = split(j.Batch, n, j.view.limits.On(j.model))
	}
}

// step lets the job run for so many seconds, or until it ends.
func (j *job) step(seconds, interference float64, tune tuner) {
	if len(j.shape) == 0 || j.done {
		j.now += seconds
		return
	}
	j.deviceSeconds += seconds * float64(j.devices())
	j.worked += seconds
	delay := min(j.rescale, seconds)
	j.rescale -= delay
	j.now += delay
	seconds -= delay
	for seconds > 0 && !j.done {
		epoch := j.epoch
		goodput := j.course.goodput(j) * (1 - interference)
		end := j.course.end(j.epoch + 1)
		if j.progress+goodput*seconds < end {
			j.progress += goodput * seconds
			j.now += seconds
			seconds = 0
		} else {
			d := j.course.lasts((end - j.progress) / goodput)
			j.epoch++
			j.progress = end
			j.now += d
			seconds -= d
			if j.epoch == j.course.epochs() {
				j.done, j.completion = true, j.now
				return
			}
		}
		j.course.adjust(j, tune)
		if j.leaving && j.epoch > epoch {
			j.left = append(j.left, j.now)
			j.stop()
			break
		}
	}
	j.now += seconds
}

// goodput is in steps at the base batch.
func (a *Application) goodput(j *job) float64 {
	t := a.Steps[j.model].At(j.shape, j.batch.LocalBatch)
	global := j.batch.Global(j.devices())
	j.measure(t, global)
	gain := a.Training.gain(global, j.epoch, a.Limits.BaseBatch)
	return gain / t.With(j.batch.Accumulation) / j.slowdown
}

func (a *Application) epochs() int { return a.Epochs }

func (a *Application) end(epoch int) float64 { return a.Training.ends[epoch] }

// lasts rounds to whole seconds, as the published simulator does.
func (a *Application) lasts(seconds float64) float64 { return math.RoundToEven(seconds) }

// measure is what the training code of a live job would report of this step.
func (j *job) measure(t StepTime, global int) {
	j.noise = j.app.Training.observed(global, j.epoch, j.app.Limits.BaseBatch)
	cfg := train.Config{Workers: j.devices(), Nodes: len(j.shape), LocalBatch: j.batch.LocalBatch}
	key := seenKey{j.model, cfg}
	if j.known[key] {
		return
	}
	j.known[key], j.stale[j.model] = true, true
	j.seen = append(j.seen, plan.Seen{
		Config: cfg, Model: j.model, Shape: slices.Clone(j.shape), StepSeconds: t.Step * j.slowdown, SyncSeconds: t.Sync * j.slowdown,
	})
}

// place gives the job what the plan says.
func (j *job) place(a train.Allocation, model string, changed bool, tune tuner) {
	j.chosen = a.Batch.LocalBatch > 0
	if j.chosen {
		j.batch = a.Batch
	}
	if !changed {
		return
	}
	j.parts, j.model = a.Places(), model
	j.shape = make([]int, len(j.parts))
	for i, p := range j.parts {
		j.shape[i] = len(p.Devices)
	}
	j.rescale = j.restart
	j.starts++
	j.startedAt, j.startedEpoch = j.now, j.epoch
	j.course.adjust(j, tune)
}

// stop takes the job's devices away.
func (j *job) stop() { j.parts, j.shape, j.leaving = nil, nil, false }

// remainingSteps is the truth that only oracles are told: the steps to the end at the requested batch.
func (j *job) remainingSteps() float64 {
	last := j.app.Epochs - 1
	if j.epoch >= last {
		return 1
	}
	return j.app.Training.iterations(j.Batch, last) - j.app.Training.iterations(j.Batch, j.epoch)
}

// trueStep is the time of a step on packed devices as it will be measured, and that of the exchange in it.
func (j *job) trueStep(cfg train.Config, model string) (step, sync float64) {
	t := j.app.Steps[model].At(spreadOver(cfg.Workers, cfg.Nodes), cfg.LocalBatch)
	return t.Step * j.slowdown, t.Sync * j.slowdown
}

// trueGain is the progress of a step in the present epoch.
func (j *job) trueGain(globalBatch int) float64 {
	return j.app.Training.gain(globalBatch, j.epoch, j.app.Limits.BaseBatch)
}

// spreadOver is the shape of devices on so many nodes, as even as can be.
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

// packed is the shape of so many devices on as few nodes as possible.
func packed(devices, perNode int) []int {
	var shape []int
	for devices > 0 {
		shape = append(shape, min(devices, perNode))
		devices -= perNode
	}
	return shape
}
