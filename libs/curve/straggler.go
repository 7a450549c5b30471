package curve

import (
	"slices"
)

// The rules for a worker that holds up the others (Optimus, EuroSys'18, section 5.2).
const (
	// slowFraction: an asynchronous worker below this fraction of the median speed is a straggler.
	slowFraction = 0.5
	// lateFraction: in synchronous training, the worker whose gradient arrives later than the median one by this
	// fraction of the median's time is a straggler.
	lateFraction = 0.5
	// minCompared is the least number of workers among which a straggler can be found.
	minCompared = 3
	// MinStragglerSteps is the number of steps of each worker that must have been seen.
	MinStragglerSteps = 10
)

// WorkerPace holds the recent reports of one worker of an attempt.
type WorkerPace struct {
	Rank int
	// StepSeconds is the mean time of a step, WaitSeconds the part of it spent waiting for the gradients of others,
	// Steps the number of steps in the mean.
	StepSeconds, WaitSeconds float64
	Steps                    float64
}

// ownSeconds is the time until the worker's own gradient is ready.
func (w WorkerPace) ownSeconds() float64 { return w.StepSeconds - w.WaitSeconds }

// Straggler finds the slowest worker if it holds up the others, and its slowdown against the median. Asynchronous
// workers are judged by speed: below half the median. Synchronous workers all take as long as the slowest, so they are
// judged by the gap between the arrival of their gradient and the median arrival; this is why each reports how long it
// waited. With fewer than three workers, or before each has made enough steps, it finds none.
func Straggler(paces []WorkerPace, async bool) (rank int, slowdown float64, found bool) {
	if len(paces) < minCompared {
		return 0, 0, false
	}
	times := make([]float64, len(paces))
	slowest := 0
	for i, p := range paces {
		if p.Steps < MinStragglerSteps || !inRange(p.ownSeconds()) || p.WaitSeconds < 0 {
			return 0, 0, false
		}
		times[i] = p.ownSeconds()
		if times[i] > times[slowest] {
			slowest = i
		}
	}
	worst := times[slowest]
	middle := middleOf(times)
	slow := worst > middle*(1+lateFraction)
	if async {
		slow = 1/worst < slowFraction/middle
	}
	return paces[slowest].Rank, worst / middle, slow
}

// middleOf is the median; of two middle values, their mean.
func middleOf(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
