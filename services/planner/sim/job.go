package sim

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// job is a job of the workload in a run.
type job struct {
	Arrival
	training Training

	// parts are what it holds, shape the devices on each node in order of ranks, model the model of all of them.
	// batch is what the plan chose, zero if it left the batch to the job.
	parts []train.Part
	shape []int
	model string
	batch train.Batch
	// planned is what the last plan gave it. leaving says that it was asked to leave what it holds, which it does at
	// its epoch's end.
	planned *plan.Holding
	leaving bool
	// left are the times at which it was made to leave within the last hour.
	left []float64

	// now is the job's own time within a tick, starting what is left of the price of its start.
	now, starting float64
	epoch         int
	progress      float64
	done          bool
	completion    float64

	starts                int
	startedAt             float64
	startedEpoch          int
	deviceSeconds, worked float64
}

func (j *job) held() Held {
	return Held{Shape: j.shape, Model: j.model, Batch: j.batch, Epoch: j.epoch, Progress: j.progress}
}

func (j *job) devices() int { return j.held().Devices() }

// step lets the job run for some seconds, or until it ends, at a part of its speed alone.
func (j *job) step(seconds, rate float64, observe func() plan.Job) {
	if len(j.shape) == 0 || j.done {
		j.now += seconds
		return
	}
	j.deviceSeconds += seconds * float64(j.devices())
	j.worked += seconds
	delay := min(j.starting, seconds)
	j.starting -= delay
	j.now += delay
	seconds -= delay
	for seconds > 0 && !j.done {
		epoch := j.epoch
		seconds -= j.train(seconds, rate)
		if j.done {
			return
		}
		j.training.Adjust(j.held(), observe)
		if j.leaving && j.epoch > epoch {
			j.left = append(j.left, j.now)
			j.stop()
			break
		}
	}
	j.now += seconds
}

// train goes on for some seconds, or to the end of the epoch if that is sooner, and returns how long it took.
func (j *job) train(seconds, rate float64) float64 {
	goodput := j.training.Goodput(j.held()) * rate
	end := j.training.End(j.epoch + 1)
	if j.progress+goodput*seconds < end {
		j.progress += goodput * seconds
		j.now += seconds
		return seconds
	}
	took := j.training.Lasts((end - j.progress) / goodput)
	j.epoch++
	j.progress = end
	j.now += took
	if j.epoch == j.training.Epochs() {
		j.done, j.completion = true, j.now
	}
	return took
}

// start begins an attempt on other devices.
func (j *job) start(places []train.Part, model string, observe func() plan.Job) {
	j.parts, j.model = places, model
	j.shape = make([]int, len(places))
	for i, p := range places {
		j.shape[i] = len(p.Devices)
	}
	j.starting = j.training.StartSeconds()
	j.starts++
	j.startedAt, j.startedEpoch = j.now, j.epoch
	j.training.Adjust(j.held(), observe)
}

// stop takes the job's devices away.
func (j *job) stop() { j.parts, j.shape, j.leaving = nil, nil, false }

// Alone returns how long a training takes by itself, its one start included, if its batch is adjusted once in an
// interval.
func Alone(t Training, h Held, intervalSeconds float64) float64 {
	j := &job{training: t, shape: h.Shape, model: h.Model, batch: h.Batch, starting: t.StartSeconds()}
	none := func() plan.Job { return plan.Job{} }
	t.Adjust(j.held(), none)
	for !j.done && j.now < Longest {
		j.step(intervalSeconds, 1, none)
	}
	return j.now
}
