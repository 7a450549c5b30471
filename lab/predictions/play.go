package predictions

import (
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// stopDecrease and stopPatience are the rule of convergence: in each of stopPatience epochs in a row the loss fell by
// less than this share of the first loss.
const (
	stopDecrease = 0.01
	stopPatience = 5
)

// tenths of a job's life at which predictions are made.
const tenths = 9

// outcome is one prediction of what is left, beside the truth and two simple answers.
type outcome struct {
	tenth          int // 1 is 10 % of the life
	truth, whole   float64
	predicted      train.Span
	declared, last float64 // simple answers: what the user declared, and as the last epoch went
	heldOut, known bool
}

// history returns what the live profiler has seen after a number of epochs.
func (t *training) history(epochs int) curve.History {
	h := curve.History{Job: t.name, Kind: train.SpeedAllReduce, On: t.prior}
	for i := range epochs {
		e := curve.EpochRecord{Epoch: i + 1, Config: t.config}
		if t.losses != nil {
			e.Loss = t.losses[i]
		}
		if t.seconds != nil {
			e.Seconds = t.seconds[i]
		}
		if t.steps != nil {
			e.Steps = t.steps[i]
		}
		h.Epochs = append(h.Epochs, e)
	}
	return h
}

// stepsPerEpoch is the planner's number: the training set over the batch, which does not change here.
func (t *training) stepsPerEpoch(train.Config) float64 { return t.declaredSteps }

// converged is the epoch at which the training meets the rule, the declared number if it never does. The rule is
// about training losses; these are measured on validation data and rise and fall by more than the threshold, so the
// mean of five epochs stands for the one in their middle.
func (t *training) converged() int {
	smooth := func(i int) float64 {
		around := min(2, i, len(t.losses)-1-i)
		return stat.Mean(t.losses[i-around:i+around+1], nil)
	}
	calm := 0
	for i := 1; i < len(t.losses); i++ {
		if calm++; smooth(i-1)-smooth(i) >= stopDecrease*t.losses[0] {
			calm = 0
		}
		if calm >= stopPatience {
			return i + 1
		}
	}
	return t.epochs
}

// atTenths calls visit for each tenth of a life in epochs, with the number of epochs that have ended by then.
func atTenths(life int, visit func(tenth, done int)) {
	for tenth := 1; tenth <= tenths; tenth++ {
		if done := int(math.Round(float64(life*tenth) / (tenths + 1))); done >= 1 && done < life {
			visit(tenth, done)
		}
	}
}

// epochsToConverge predicts how many epochs are left until the rule is met.
func (t *training) epochsToConverge() []outcome {
	var all []outcome
	life := t.converged()
	rule := train.StopRule{MaxEpochs: float64(t.epochs), MinDecrease: stopDecrease * t.losses[0], Patience: stopPatience}
	atTenths(life, func(tenth, done int) {
		left := curve.Refit(t.history(done)).EpochsLeft(float64(done), rule)
		all = append(all, outcome{
			tenth: tenth, truth: float64(life - done), whole: float64(life), predicted: left, heldOut: t.heldOut, known: true,
			declared: float64(t.epochs - done), last: float64(t.lastDecrease(done)),
		})
	})
	return all
}

// lastDecrease is the naive answer: a loss that has just stood still will stand still, and one that has just fallen
// will fall until the declared end.
func (t *training) lastDecrease(done int) int {
	if done > 1 && t.losses[done-2]-t.losses[done-1] < stopDecrease*t.losses[0] {
		return min(stopPatience, t.epochs-done)
	}
	return t.epochs - done
}

// secondsLeft predicts the time to the declared end: on the configuration that runs, or on the one that has never run.
// Others of its family have taught it some step times.
func (t *training) secondsLeft(unobserved bool, taught []curve.StepSample) []outcome {
	seconds, config := t.seconds, t.config
	if unobserved {
		seconds, config = t.moved, t.movedTo
	}
	if seconds == nil {
		return nil
	}
	var all []outcome
	atTenths(t.epochs, func(tenth, done int) {
		o := outcome{tenth: tenth, heldOut: t.heldOut}
		h := t.history(done)
		h = h.With(curve.Lend(h, h.Ran(), nil, taught))
		o.predicted, o.known = curve.Refit(h).RemainingSeconds(config, float64(done), train.StopRule{MaxEpochs: float64(t.epochs)}, t.stepsPerEpoch)
		for i := range seconds {
			o.whole += seconds[i]
			if i >= done {
				o.truth += seconds[i]
			}
		}
		o.declared, o.last = t.naive(done, unobserved)
		all = append(all, o)
	})
	return all
}

// naive are two simple answers: the declared steps at the measured step time (if steps are unknown, the first epoch for
// each epoch left), and the last epoch for each epoch left. Twice as many devices are assumed to halve both.
func (t *training) naive(done int, unobserved bool) (declared, last float64) {
	left := float64(t.epochs - done)
	declared, last = left*t.declaredSteps*t.stepSeconds, left*t.seconds[done-1]
	if t.steps == nil {
		declared = left * t.seconds[0]
	}
	if unobserved {
		return declared / 2, last / 2
	}
	return declared, last
}
