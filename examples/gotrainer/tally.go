package main

import (
	"time"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/checkpoint"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/jobapi"
)

// tally adds up steps.
type tally struct {
	steps, samples   int
	seconds, waited  float64
	loss             float64 // summed over samples
	gradSqr, gradVar float64 // summed over steps
}

// newTally measures one step. The squared norm of the true gradient and the trace of the covariance of single samples'
// gradients are estimated as in McCandlish et al. 2018 (appendix A.1, with a small batch of one and the step's batch as
// the large one); both are unbiased, so single values may be negative.
func newTally(gradient, tail []float64, took, waited time.Duration) tally {
	n := tail[tailSamples]
	one := tally{steps: 1, samples: int(n), seconds: took.Seconds(), waited: waited.Seconds(), loss: tail[tailLoss]}
	if n < 2 {
		return one
	}
	whole := 0.0
	for _, g := range gradient {
		whole += g * g
	}
	whole /= n * n
	one.gradVar = (tail[tailSquaredNorms]/n - whole) * n / (n - 1)
	one.gradSqr = whole - one.gradVar/n
	return one
}

func (t *tally) add(other tally) {
	t.steps += other.steps
	t.samples += other.samples
	t.seconds += other.seconds
	t.waited += other.waited
	t.loss += other.loss
	t.gradSqr += other.gradSqr
	t.gradVar += other.gradVar
}

// heartbeat reports means over the tally. state counts the tally's steps already, but
// not yet the epoch. Estimates are averaged before they are cut off at zero, since
// each alone is too noisy to be cut.
func (t *tally) heartbeat(state checkpoint.State, rank int, batch jobapi.Batch) jobapi.Steps {
	steps := float64(t.steps)
	return jobapi.Steps{
		Step: state.Steps, Epoch: state.Epochs, Steps: t.steps, StepSeconds: t.seconds / steps, WaitSeconds: t.waited / steps, Samples: t.samples,
		Rank: rank, Loss: t.loss / float64(t.samples), GradSqr: max(0, t.gradSqr/steps), GradVar: max(0, t.gradVar/steps), Batch: batch,
	}
}
