// Package progress folds the facts of one run of a job: its state, its epochs, its speed and its use of processors. It
// has no clock and reads nothing; the caller passes each message.
package progress

import (
	"maps"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Run holds what the facts so far say about a run.
type Run struct {
	ID   train.JobID
	Spec train.Spec

	State   train.State
	Reason  string
	Devices int
	Servers int
	Epochs  []Epoch

	// began is when the present attempt started or its last epoch ended.
	began time.Time
	// beat is the newest heartbeat since the last epoch.
	beat *event.Stepped
	use  processorUse
	// marked are the epochs and the processor use at the last Mark.
	marked    int
	markedUse processorUse
}

// Epoch is an epoch of the whole job.
type Epoch struct{ Seconds, Samples, Steps float64 }

// Mark is the progress between two marks.
type Mark struct {
	// Epochs are all epochs so far.
	Epochs int
	// Step is the newest step of an epoch under way, or 0 if an epoch has ended since the last mark.
	Step int
	// SamplesPerSecond and StepsPerSecond are 0 if they are not known.
	SamplesPerSecond, StepsPerSecond float64
	// Cores is the mean number of processors in use on all nodes, or negative if nothing was measured.
	Cores float64
}

// processorUse is CPU seconds over the time in which they were measured, for each node of the job.
type processorUse map[train.NodeID]usedSeconds

type usedSeconds struct{ work, measured float64 }

// New begins with a job that was submitted.
func New(id train.JobID, spec train.Spec) *Run {
	return &Run{ID: id, Spec: spec, State: train.StateSubmitted, use: processorUse{}, markedUse: processorUse{}}
}

// Apply folds one message, stored at a time. It ignores facts of other jobs and facts that cannot be read.
func (r *Run) Apply(subject event.Subject, at time.Time, data []byte) {
	kind, known := event.Find(subject)
	if !known || kind.Entity == "job" && subject.ID != string(r.ID) {
		return
	}
	body, err := event.DecodeBody(kind, data)
	if err != nil {
		return
	}
	switch b := body.(type) {
	case *event.Started:
		r.State, r.Reason, r.Devices, r.Servers, r.began, r.beat = train.StateRunning, "", len(b.Devices), b.Servers, at, nil
	case *event.EpochEnded:
		r.epoch(at, b)
	case *event.Stepped:
		if b.Job == r.ID && b.Rank == 0 {
			r.beat = b
		}
	case *event.Measured:
		r.measured(b)
	default:
		r.turn(body)
	}
}

// turn follows the states besides running.
func (r *Run) turn(body any) {
	switch b := body.(type) {
	case *event.Rejected:
		r.State, r.Reason = train.StateRejected, b.Message
	case *event.Queued:
		if r.State = train.StateQueued; len(b.Blockers) > 0 {
			r.Reason = b.Blockers[0].String()
		}
	case *event.Succeeded:
		r.State, r.Reason = train.StateSucceeded, b.Note
	case *event.Failed:
		r.State, r.Reason = train.StateFailed, b.Reason.String()
	case *event.Cancelled:
		r.State = train.StateCancelled
	}
}

// epoch adds an epoch. Figures that the training code leaves out follow from the job and the clock.
func (r *Run) epoch(at time.Time, b *event.EpochEnded) {
	e := Epoch{Seconds: b.EpochSeconds, Samples: float64(b.Samples), Steps: float64(b.Steps)}
	if !(e.Seconds > 0) {
		e.Seconds = at.Sub(r.began).Seconds()
	}
	if e.Samples == 0 {
		e.Samples = float64(r.Spec.TrainingSetSize)
	}
	if e.Steps == 0 {
		e.Steps = float64(r.Spec.StepsPerEpoch(max(b.Devices, 1)))
	}
	r.Epochs, r.began, r.beat = append(r.Epochs, e), at, nil
}

// measured adds an interval of a node's meters in which the job used the node. Several attempts of it add up.
func (r *Run) measured(b *event.Measured) {
	work, mine := 0.0, false
	for _, u := range b.Users {
		if u.Job == r.ID && u.Component == "cpu" {
			work, mine = work+u.Work, true
		}
	}
	if seconds := b.To.Sub(b.From).Seconds(); mine && seconds > 0 {
		used := r.use[b.Node]
		r.use[b.Node] = usedSeconds{used.work + work, used.measured + seconds}
	}
}

// Cores returns the mean number of processors in use on all nodes, or a negative number if nothing was measured.
func (r *Run) Cores() float64 { return r.use.cores(nil) }

// cores returns the mean since an earlier state.
func (u processorUse) cores(since processorUse) float64 {
	sum, known := 0.0, false
	for node, now := range u {
		before := since[node]
		if seconds := now.measured - before.measured; seconds > 0 {
			sum, known = sum+(now.work-before.work)/seconds, true
		}
	}
	if !known {
		return -1
	}
	return sum
}

// Speed returns the mean samples and steps per second of some epochs, or zero without epochs.
func Speed(epochs []Epoch) (samples, steps float64) {
	seconds := 0.0
	for _, e := range epochs {
		seconds, samples, steps = seconds+e.Seconds, samples+e.Samples, steps+e.Steps
	}
	if seconds <= 0 {
		return 0, 0
	}
	return samples / seconds, steps / seconds
}

// Steady returns the epochs without the first, which loads and warms up, unless it is the only one.
func (r *Run) Steady() []Epoch {
	if len(r.Epochs) > 1 {
		return r.Epochs[1:]
	}
	return r.Epochs
}

// Mark returns the progress since the last mark, and makes one.
func (r *Run) Mark() Mark {
	m := Mark{Epochs: len(r.Epochs), Cores: r.use.cores(r.markedUse)}
	m.SamplesPerSecond, m.StepsPerSecond = Speed(r.Epochs[r.marked:])
	if len(r.Epochs) == r.marked && r.beat != nil && r.beat.StepSeconds > 0 {
		m.Step, m.StepsPerSecond = r.beat.Step, 1/r.beat.StepSeconds
		m.SamplesPerSecond = m.StepsPerSecond * float64(r.Spec.Batch(max(r.Devices, 1)).Global(max(r.Devices, 1)))
	}
	r.marked, r.markedUse = len(r.Epochs), maps.Clone(r.use)
	return m
}
