package train

import (
	"math"
	"time"
)

// LimitLeft returns for how much longer the job may run if the attempt is the newest; false without a limit. The record
// may be older than the attempt, or newer: an attempt counts once.
func (j Job) LimitLeft(a Attempt, now time.Time) (time.Duration, bool) {
	limit := time.Duration(j.Spec.TimeLimit)
	if limit <= 0 {
		return 0, false
	}
	counted := j.Attempt > a.Number || j.Attempt == a.Number && j.AttemptStartedAt.IsZero()
	left := limit - time.Duration(math.Min(j.RunSeconds, limit.Seconds())*float64(time.Second))
	if !counted && !a.StartedAt.IsZero() {
		left -= max(now.Sub(a.StartedAt), 0)
	}
	return left, true
}
