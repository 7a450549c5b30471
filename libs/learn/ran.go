package learn

import (
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// maxRan bounds the configurations whose times are kept; the one measured first goes.
	maxRan = 128
	// noiseSeconds is how much training the gradient noise rests on. It changes by orders of magnitude with the loss and
	// the batch, so that older reports would outweigh newer ones.
	noiseSeconds = 10
)

// ran sums up the steps on one configuration.
type ran struct {
	train.Ran
	steps float64
}

// observeRan adds a heartbeat to the times of its configuration. A step of several passes costs one pass after the
// other, and the exchange of gradients once.
func (j *Job) observeRan(b event.Stepped, cfg train.Config, passes int) {
	if b.WaitSeconds < 0 || b.WaitSeconds > b.StepSeconds {
		return
	}
	pass := (b.StepSeconds - b.WaitSeconds) / float64(passes)
	at := slices.IndexFunc(j.ran, func(r ran) bool { return r.Config == cfg && r.Device == j.device })
	if at < 0 {
		if len(j.ran) == maxRan {
			j.ran = slices.Delete(j.ran, 0, 1)
		}
		at = len(j.ran)
		j.ran = append(j.ran, ran{Ran: train.Ran{Config: cfg, Device: j.device}})
	}
	r, steps := &j.ran[at], float64(max(b.Steps, 1))
	r.steps += steps
	r.StepSeconds += (pass + b.WaitSeconds - r.StepSeconds) * steps / r.steps
	r.SyncSeconds += (b.WaitSeconds - r.SyncSeconds) * steps / r.steps
}

// ranBatch returns the batch that the code reported, else the batch that it was given.
func (j *Job) ranBatch(reported train.Batch, devices int) train.Batch {
	switch {
	case reported.LocalBatch > 0:
		return reported
	case j.batch > 0:
		return train.Batch{LocalBatch: j.batch}
	}
	return j.Spec.Batch(devices)
}

// advance adds the progress of some steps: each counts by its gain.
func (j *Job) advance(steps, global int) {
	j.progress += float64(max(steps, 0)) * j.efficiency().Gain(global)
}

// observeNoise adds a report of the gradient noise at a global batch: variance is that of the gradients of single
// samples.
func (j *Job) observeNoise(square, variance *float64, seconds float64, batch int) {
	if square == nil || variance == nil || math.IsNaN(*square+*variance) || math.IsInf(*square+*variance, 0) {
		return
	}
	if j.noise.seconds >= noiseSeconds || j.noise.batch != batch {
		if j.noise.seconds >= noiseSeconds {
			j.noiseBefore = j.noise
		}
		j.noise = noise{batch: batch}
	}
	n, more := &j.noise, max(seconds, 1e-3)
	n.seconds += more
	n.square += (*square - n.square) * more / n.seconds
	n.variance += (*variance - n.variance) * more / n.seconds
}

// noise is the mean of the gradient noise over a stretch of training. A single report may be negative: an unbiased
// estimate of a square can be.
type noise struct {
	square, variance, seconds float64
	batch                     int
}

func (j *Job) efficiency() train.Efficiency {
	n, base := j.noise, max(j.Spec.BaseBatch(), 1)
	if n.seconds < noiseSeconds && j.noiseBefore.seconds > 0 {
		n = j.noiseBefore
	}
	return train.Efficiency{Variance: max(n.variance, 0) / float64(base), Square: max(n.square, 0), BaseBatch: base, Batch: n.batch}
}

// observeStart takes the price of a start from the first report of an attempt: what went by before its steps.
func (j *Job) observeStart(at time.Time, trained float64) {
	if j.startedAt.IsZero() || j.begun {
		return
	}
	j.begun = true
	j.starts++
	j.startSeconds += (max(at.Sub(j.startedAt).Seconds()-trained, 0) - j.startSeconds) / j.starts
}
