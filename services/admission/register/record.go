package register

import (
	"fmt"
	"math"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// endAttempt closes the attempt once. It returns false if the attempt ended before, or a newer one has begun.
func endAttempt(job *train.Job, at time.Time, attempt, epochs int) bool {
	if attempt < job.Attempt || attempt == job.Attempt && job.AttemptStartedAt.IsZero() {
		return false
	}
	job.Attempt, job.Restarts = attempt, max(attempt-1, 0)
	if epochs > job.EpochsDone {
		job.EpochsDone, job.EpochStep = epochs, 0
	}
	addRun(job, at)
	return true
}

// reached says how far a job is in its saved state.
func reached(job *train.Job) string {
	switch {
	case job.EpochStep > 0 && job.EpochSteps > 0:
		return fmt.Sprintf("step %d of %d of epoch %d", job.EpochStep, job.EpochSteps, job.EpochsDone+1)
	case job.EpochStep > 0:
		return fmt.Sprintf("step %d of epoch %d", job.EpochStep, job.EpochsDone+1)
	}
	return fmt.Sprintf("epoch %d", job.EpochsDone)
}

// afterSaved says from where a job goes on, if that is known.
func afterSaved(job *train.Job) string {
	if job.EpochsDone == 0 && job.EpochStep == 0 {
		return ""
	}
	return " after " + reached(job)
}

// lost says how much training is to be repeated.
func lost(of train.Resume) string {
	const worthMentioning = 1 // seconds
	switch {
	case of.RepeatedEpochs == 1:
		return ": the last epoch that it reported is in no checkpoint and is trained again"
	case of.RepeatedEpochs > 1:
		return fmt.Sprintf(": the last %d epochs that it reported are in no checkpoint and are trained again", of.RepeatedEpochs)
	case of.LostSeconds < worthMentioning:
		return ""
	case of.LostSteps > 0:
		return fmt.Sprintf(": about %s of training (%d steps) are lost", spoken(of.LostSeconds), of.LostSteps)
	}
	return fmt.Sprintf(": %s are lost", spoken(of.LostSeconds))
}

func finish(job *train.Job, at time.Time, attempt, epochs int) {
	job.Attempt = max(job.Attempt, attempt)
	job.Restarts = max(job.Attempt-1, 0)
	if epochs > job.EpochsDone {
		job.EpochsDone, job.EpochStep = epochs, 0
	}
	job.FinishedAt = at
	addRun(job, at)
}

// addRun adds the open attempt to the run time and releases its devices.
func addRun(job *train.Job, at time.Time) {
	if !job.AttemptStartedAt.IsZero() {
		seconds := math.Max(at.Sub(job.AttemptStartedAt).Seconds(), 0)
		job.RunSeconds += seconds
		job.DeviceSeconds += seconds * float64(len(job.Devices))
	}
	job.AttemptStartedAt, job.Devices = time.Time{}, nil
}

// predict sets the current predicted finish, and keeps the first one predicted after an epoch. Older planners give no
// interval.
func predict(job *train.Job, now time.Time, left train.Span) {
	const century = 100 * 365 * 24 * 3600.0
	at := func(seconds float64) time.Time {
		return now.Add(time.Duration(math.Min(seconds, century) * float64(time.Second)))
	}
	job.PredictedFinish = at(left.Expected)
	if !job.FirstPredictedFinish.IsZero() || job.EpochsDone == 0 {
		return
	}
	job.FirstPredictedFinish = job.PredictedFinish
	if left.High >= left.Expected && left.High > 0 {
		job.FirstPredictedLow, job.FirstPredictedHigh = at(left.Low), at(left.High)
	}
}

func bounded(reasons []train.Reason) []train.Reason {
	kept := make([]train.Reason, 0, min(len(reasons), maxBlockers))
	for _, r := range reasons[:min(len(reasons), maxBlockers)] {
		kept = append(kept, train.Reason{
			Code: clip(r.Code, maxText/4), Field: clip(r.Field, maxText/4), Message: clip(r.Message, maxText), Hint: clip(r.Hint, maxText),
		})
	}
	return kept
}

func join(first, second string) string {
	if second == "" {
		return first
	}
	return first + ": " + second
}

// spoken prints a duration as people say it.
func spoken(seconds float64) string {
	switch {
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", 1000*seconds)
	case seconds < 100:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds < 100*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	default:
		return fmt.Sprintf("%.1f h", seconds/3600)
	}
}
