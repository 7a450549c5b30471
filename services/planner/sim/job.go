package sim

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// job is a job of the workload in a run.
type job struct {
	Arrival
	training Training
	// spec is what was admitted, own its kind. atOnce says that the job may leave in the middle of an epoch.
	spec   train.Spec
	own    curve.Kind
	atOnce bool

	// parts are what it holds, shape the devices on each node in order of ranks, device the model of all of them.
	// batch is what the plan chose, zero if it left the batch to the job.
	parts  []train.Part
	shape  []int
	device string
	batch  train.Batch
	// leaving is set once the job was asked to give up what it holds. It does at the next heartbeat if its code can save
	// there, else at the end of the epoch.
	leaving bool
	// left are the times at which it was made to leave within the last hour.
	left []train.Change

	// now is the job's own time within a tick, starting what is left of the price of its start.
	now, starting float64
	position
	done       bool
	completion float64

	starts    int
	startedAt float64
	started   position
	work
	// before is the work of the attempts before this one, counted the device time that its tenant's usage has.
	before  work
	counted float64

	// learned is what a profiler makes of the job's reports, model the newest model; fresh says that it is outdated.
	// reported says that it has news for its family.
	learned         *learn.Job
	family          string
	model           *train.Model
	fresh, reported bool
	// steps counts the steps, step0 the reported ones. beat is the newest heartbeat.
	steps float64
	step0 int
	beat  train.Steps
}

// position is how far a training has come: the epochs that have ended, the steps since then (0 if its code does not
// report steps), and the progress.
type position struct {
	epoch      int
	epochSteps float64
	progress   float64
}

// work is the time that a job has run, and its time on all devices.
type work struct{ worked, deviceSeconds float64 }

func (j *job) held() Held {
	return Held{Shape: j.shape, Model: j.device, Batch: j.batch, Epoch: j.epoch, Progress: j.progress}
}

func (j *job) devices() int { return j.held().Devices() }

// step lets the job run for some seconds, or until it ends, at a part of its speed alone.
func (j *job) step(seconds, rate float64) {
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
		epoch, rest := j.epoch, j.beatRest(rate)
		took := j.train(min(seconds, rest), rate)
		seconds -= took
		if j.done {
			return
		}
		j.training.Adjust(j.held())
		if j.leaving && (j.epoch > epoch || took >= rest) {
			j.leave()
			break
		}
	}
	j.now += seconds
}

// beatRest is how long it is to the heartbeat at which a job leaves that was asked to; infinite without one.
func (j *job) beatRest(rate float64) float64 {
	if !j.leaving || !j.training.AnyStep() {
		return math.Inf(1)
	}
	left := float64(j.step0+j.training.BeatSteps(j.held())) - j.steps
	return max(left, math.Ceil(j.steps)-j.steps) * j.beat.Seconds / rate
}

// leave ends an attempt that was asked to leave; its code has saved what it did.
func (j *job) leave() {
	if j.epochSteps > 0 {
		j.take(&event.CheckpointWritten{Attempt: j.starts, EpochsDone: j.epoch, EpochStep: int(j.epochSteps), EpochSteps: j.beat.Of})
	}
	j.left = append(j.left, train.Change{At: at(j.now), Fact: event.FactPreempted})
	j.stop()
}

// train goes on for some seconds, or to the end of the epoch if that is sooner, and returns how long it took.
func (j *job) train(seconds, rate float64) float64 {
	held := j.held()
	goodput := j.training.Goodput(held) * rate
	end := j.training.End(j.epoch + 1)
	if j.progress+goodput*seconds < end {
		j.progress += goodput * seconds
		j.now += seconds
		j.told(held, seconds*rate, goodput/rate, false)
		return seconds
	}
	took := j.training.Lasts((end - j.progress) / goodput)
	j.progress = end
	j.now += took
	j.told(held, took*rate, goodput/rate, true)
	j.epoch, j.epochSteps = j.epoch+1, 0
	j.beat.Epoch, j.beat.Done = j.epoch, 0
	ended := j.training.Ended(j.held())
	ended.Attempt, ended.EpochsDone, ended.Devices = j.starts, j.epoch, held.Devices()
	j.take(&ended)
	if j.epoch == j.training.Epochs() {
		j.done, j.completion = true, j.now
		j.take(&event.Succeeded{Attempt: j.starts, EpochsDone: j.epoch})
	}
	return took
}

// start begins an attempt on other devices.
func (j *job) start(places []train.Part, device string) {
	j.parts, j.device = places, device
	j.shape = make([]int, len(places))
	for i, p := range places {
		j.shape[i] = len(p.Devices)
	}
	j.starting = j.training.StartSeconds()
	j.starts++
	j.startedAt, j.started, j.before, j.beat = j.now, j.position, j.work, train.Steps{}
	j.take(j.startedFact())
	j.training.Adjust(j.held())
}

// stop takes the job's devices away.
func (j *job) stop() {
	if j.parts != nil {
		j.take(&event.Preempted{Attempt: j.starts})
	}
	j.parts, j.shape, j.leaving = nil, nil, false
}

// Alone returns how long a training takes by itself, its one start included, if its batch is adjusted once in an
// interval.
func Alone(t Training, h Held, intervalSeconds float64) float64 {
	j := &job{training: t, shape: h.Shape, device: h.Model, batch: h.Batch, starting: t.StartSeconds()}
	t.Adjust(j.held())
	for !j.done && j.now < Longest {
		j.step(intervalSeconds, 1)
	}
	return j.now
}
