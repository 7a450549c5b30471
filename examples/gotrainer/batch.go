package main

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/jobapi"
)

// stepBatch returns the batch of the next step. The scheduler's desired one changes after a heartbeat or an epoch. All
// passes of a step give the same gradient as one pass would. If the job has no global batch, a micro-batch above the
// batch, chosen only for jobs that allow it, is a larger step. Only a job with one process takes it: several receive
// changes at different times, yet they must take the same steps.
func (t *trainer) stepBatch() jobapi.Batch {
	b, most := t.beats.Wanted(), t.batch
	b.GlobalBatch = t.global
	if t.global > 0 {
		most = t.share()
	} else if t.processes == 1 {
		most = max(t.batch, t.samples)
	}
	if b.MicroBatch < 1 || b.MicroBatch > most {
		b.MicroBatch = min(t.batch, most)
	}
	if b.GlobalBatch == 0 {
		b.GlobalBatch = t.totalWorkers() * max(t.batch, b.MicroBatch)
	}
	b.Accumulation = passes(b.GlobalBatch, t.totalWorkers()*b.MicroBatch)
	b.Generation = max(b.Generation, t.generation)
	return b
}

// share returns the samples of the worker with the largest share of a step.
func (t *trainer) share() int { return passes(t.global, t.totalWorkers()) }

func passes(samples, each int) int { return (samples + each - 1) / each }

// followBatch makes every process take the step that rank 0 was asked for last.
func (t *trainer) followBatch() error {
	if t.rateRule == "" {
		return nil // the step is fixed
	}
	word, err := json.Marshal(t.beats.Wanted().GlobalBatch)
	if err == nil {
		word, err = t.exchange.Broadcast(word)
	}
	if err != nil {
		return fmt.Errorf("agree on the batch: %w", err)
	}
	wanted := 0
	if err := json.Unmarshal(word, &wanted); err != nil {
		return fmt.Errorf("agree on the batch %q: %w", word, err)
	}
	if wanted >= t.totalWorkers() {
		t.global = wanted
	}
	return nil
}

// rateScale returns the factor of the learning rate for a step of batch samples.
func (t *trainer) rateScale(batch int) float64 {
	if t.global == 0 {
		// One larger step moves as far as several (Goyal et al. 2017), and the square root keeps the variance of an
		// update's noise (Krizhevsky 2014).
		scale := float64(batch) / float64(t.totalWorkers()*t.batch)
		if t.scaleRate {
			scale *= math.Sqrt(float64(t.totalWorkers()))
		}
		return scale
	}
	ratio := float64(batch) / float64(t.baseBatch)
	switch t.rateRule {
	case "linear":
		return ratio
	case "sqrt":
		return math.Sqrt(ratio)
	case "adascale":
		return t.noise.gain(t.baseBatch, batch)
	}
	return 1
}

// noise is the gradient noise, smoothed over steps: the squared norm of the mean gradient, and the trace of the
// covariance of single samples' gradients.
type noise struct {
	sqr, variance float64
	steps         int
}

// memory is the number of steps over which noise is smoothed.
const memory = 50

func (n *noise) add(one tally) {
	n.steps++
	weight := 1 / float64(min(n.steps, memory))
	n.sqr += weight * (one.gradSqr - n.sqr)
	n.variance += weight * (one.gradVar - n.variance)
}

// gain returns the progress of a step of batch samples in steps of base samples (AdaScale, Johnson et al. 2020).
func (n *noise) gain(base, batch int) float64 {
	sqr, variance := max(n.sqr, 0), max(n.variance, 0)/float64(base)
	if !(sqr+variance > 0) {
		return 1
	}
	return (variance + sqr) / (variance*float64(base)/float64(batch) + sqr)
}
