package curve

import (
	"slices"
)

// The rules for a worker that holds up the others (Optimus, EuroSys'18, section 5.2).
const (
	// slowFraction: an asynchronous worker below this part of the median speed is a straggler.
	slowFraction = 0.5
	// lateFraction: in synchronous training the last gradient that arrives so much later than the median one, as a part of the median's time, comes from one.
	lateFraction = 0.5
	// minCompared is the least number of workers of which one can be said to be slow.
	minCompared = 3
	// MinStragglerSteps is how many steps of each worker must have been seen.
	MinStragglerSteps = 10
)

// WorkerPace is what one worker of an attempt has reported lately.
type WorkerPace struct {
	Rank int
	// StepSeconds is the mean time of a step, WaitSeconds the part of it spent waiting for the gradients of others, Steps how many steps it is of.
	StepSeconds, WaitSeconds float64
	Steps                    float64
}

// own is the time until the worker's own gradient is there.
func (w WorkerPace) own() float64 { return w.StepSeconds - w.WaitSeconds }

// Straggler finds the slowest worker if it holds up the others, and its slowdown against the median. Asynchronous workers are told by speed: below half the
// median one. Synchronous ones all take as long as the slowest, so they are told by the gap between the arrival of their gradient and the median arrival,
// which is why each reports how long it waited. Nothing is said of fewer than three workers, or before each has made enough steps.
func Straggler(paces []WorkerPace, async bool) (rank int, slowdown float64, found bool) {
	if len(paces) < minCompared {
		return 0, 0, false
	}
	times := make([]float64, len(paces))
	slowest := 0
	for i, p := range paces {
		if p.Steps < MinStragglerSteps || !inRange(p.own()) || p.WaitSeconds < 0 {
			return 0, 0, false
		}
		times[i] = p.own()
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

// middleOf is the median, the mean of the middle two where there are two.
func middleOf(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
