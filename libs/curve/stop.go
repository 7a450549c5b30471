package curve

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Stop is the point at which a job has converged.
type Stop struct {
	// Epochs is the number of ended epochs, LossDecrease the fall of the fitted loss in the last of them.
	Epochs       int
	LossDecrease float64
}

// Converged reports whether training is over by the rule: in each of the last Patience epochs the fitted loss fell by
// less than MinDecrease, and so did the reported one on average over them, outliers replaced. The second condition
// keeps a poor fit from ending a job whose loss still falls. Converged ignores MaxEpochs: a job ends there by itself.
func Converged(points []Point, rule train.StopRule) (Stop, bool) {
	points = usable(points)
	patience := max(rule.Patience, 1)
	if !(rule.MinDecrease > 0) || len(points) < max(patience+1, MinConvergencePoints) {
		return Stop{}, false
	}
	fit, err := FitConvergence(points)
	if err != nil {
		return Stop{}, false
	}
	clean := withoutOutliers(points)
	last, before := clean[len(clean)-1], clean[len(clean)-1-patience]
	if last.Epoch-before.Epoch > float64(patience) {
		return Stop{}, false // epochs in between are missing, and each of them is needed
	}
	if before.Loss-last.Loss >= rule.MinDecrease*(last.Epoch-before.Epoch) {
		return Stop{}, false
	}
	// The drops of the fitted curve never rise, so the first of the calm epochs decides for all.
	first := last.Epoch - float64(patience) + 1
	if fit.Loss(first-1)-fit.Loss(first) >= rule.MinDecrease {
		return Stop{}, false
	}
	return Stop{Epochs: int(math.Round(last.Epoch)), LossDecrease: math.Max(fit.Loss(last.Epoch-1)-fit.Loss(last.Epoch), 0)}, true
}
