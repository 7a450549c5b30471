package live

import (
	"math"

	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Pace is how a training goes on at what it holds.
type Pace struct {
	// StepSeconds is the time of an optimizer step, WaitSeconds the part of it in which gradients are exchanged.
	StepSeconds, WaitSeconds float64
	// Gain is the progress of a step.
	Gain float64
	// Square and Variance are the gradient noise.
	Square, Variance float64
}

// PaceOf returns the pace in an epoch (from 0) on some devices of each node. The trainer and the simulator both ask it.
func PaceOf(c traces.Course, factor float64, shape []int, b train.Batch, epoch int) Pace {
	devices := 0
	for _, n := range shape {
		devices += n
	}
	step, exchange := c.Step(shape, b)
	samples := b.Global(devices)
	p := Pace{StepSeconds: step / factor, WaitSeconds: exchange / factor, Gain: c.Gain(samples, epoch)}
	p.Square, p.Variance = c.Noise(samples, epoch)
	return p
}

const (
	// HeartbeatSteps is the default number of steps between two heartbeats.
	HeartbeatSteps = 10
	// beatSeconds is the least time between two heartbeats: the agent keeps no more than two a second.
	beatSeconds = 0.5
)

// BeatSteps is the number of steps between two heartbeats. The trainer and the simulator both ask it.
func BeatSteps(least int, stepSeconds float64) int {
	return max(least, int(math.Ceil(beatSeconds/stepSeconds)))
}

// replayed is a job in virtual time.
type replayed struct {
	Job
	factor, startSeconds float64
}

// Start begins the training for one run.
func (r *replayed) Start() (sim.Training, error) {
	return &training{Course: r.Application.Course(""), job: r}, nil
}

type training struct {
	traces.Course
	job *replayed
}

// Spec is what was submitted.
func (t *training) Spec() train.Spec { return t.job.Spec }

// Epochs are those of the application.
func (t *training) Epochs() int { return t.Profile.Epochs }

// StartSeconds is what a start has cost in the live run.
func (t *training) StartSeconds() float64 { return t.job.startSeconds }

// Lasts is what was computed.
func (t *training) Lasts(seconds float64) float64 { return seconds }

// Adjust has nothing to do: the batch is the plan's, or the submitted one.
func (t *training) Adjust(sim.Held) {}

// Opaque is false: the trainer reports steps and epochs.
func (t *training) Opaque() bool { return false }

// AnyStep is true: the trainer leaves at any heartbeat.
func (t *training) AnyStep() bool { return true }

// BeatSteps are those of the trainer.
func (t *training) BeatSteps(h sim.Held) int { return BeatSteps(HeartbeatSteps, t.pace(h).StepSeconds) }

func (t *training) batch(h sim.Held) train.Batch {
	if t.job.Spec.AdaptiveBatch != nil && h.Batch.LocalBatch > 0 {
		return h.Batch
	}
	return t.job.Spec.Batch(h.Devices())
}

func (t *training) pace(h sim.Held) Pace {
	return PaceOf(t.Course, t.job.factor, h.Shape, t.batch(h), min(h.Epoch, t.Epochs()-1))
}

// Goodput is in steps at the base batch per second.
func (t *training) Goodput(h sim.Held) float64 {
	p := t.pace(h)
	return p.Gain / p.StepSeconds
}

// Report is the heartbeat of rank 0.
func (t *training) Report(h sim.Held) event.Stepped {
	p := t.pace(h)
	return event.Stepped{StepSeconds: p.StepSeconds, WaitSeconds: p.WaitSeconds, Batch: t.batch(h), GradSquared: &p.Square, GradVariance: &p.Variance}
}

// Ended is what rank 0 reports of an epoch that it spent on what it holds.
func (t *training) Ended(h sim.Held) event.EpochEnded {
	last := h
	last.Epoch--
	p := t.pace(last)
	steps := (t.End(h.Epoch) - t.End(last.Epoch)) / p.Gain
	return event.EpochEnded{EpochSeconds: steps * p.StepSeconds, Steps: int(steps), Batch: t.batch(h)}
}

// AloneSeconds is on as few nodes as possible.
func (t *training) AloneSeconds(_ []train.Node, devices int) float64 {
	var shape []int
	for left := max(1, min(devices, t.job.Spec.MaxDevices)); left > 0; left -= DevicesPerNode {
		shape = append(shape, min(left, DevicesPerNode))
	}
	return sim.Alone(t, sim.Held{Shape: shape}, 1)
}
