package planner

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// correctEvery is the least time between plans that differ in predictions alone.
	correctEvery = 5 * time.Second
	// worthCorrecting is the part of the time to go by which a prediction must be off, and correctSeconds the least.
	worthCorrecting = 0.25
	correctSeconds  = 5
)

// corrects reports whether the predictions of a plan differ so much from those of one with the same allocations that
// users should see them.
func corrects(before, now train.Plan) bool {
	if now.DecidedAt.Sub(before.DecidedAt) < correctEvery {
		return false
	}
	passed := now.DecidedAt.Sub(before.DecidedAt).Seconds()
	for i, a := range now.Allocations {
		if i < len(before.Allocations) && off(before.Allocations[i].Forecast.Finish, a.Forecast.Finish, passed) {
			return true
		}
	}
	for i, w := range now.Waiting {
		if i < len(before.Waiting) && off(before.Waiting[i].Forecast.Start, w.Forecast.Start, passed) {
			return true
		}
	}
	return false
}

// off reports whether a prediction made some seconds ago is far from a new one, or there was none.
func off(before, now *train.Span, passed float64) bool {
	if before == nil || now == nil {
		return before == nil && now != nil
	}
	shift := before.Expected - passed - now.Expected
	return max(shift, -shift) > max(worthCorrecting*now.Expected, correctSeconds)
}
