package diff

import (
	"cmp"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Verdict is what the end of an attempt means for its job.
type Verdict struct {
	Outcome    train.Outcome
	EpochsDone int
	// Note is for a success that a person should look at, Reason for a failure.
	Note   string
	Reason train.Reason
	// Forced says that an attempt that was asked to leave had to be killed.
	Forced bool
	// Retry is how long the next attempt waits after a loss.
	Retry time.Duration
}

// Judge decides what an exit means. It gives the same verdict for the same record, so that a crash between the decision and its telling does not matter.
func Judge(a train.Attempt, r train.AttemptReport, job train.Job) Verdict {
	v := Verdict{EpochsDone: max(r.EpochsDone, a.StartedEpochs, job.EpochsDone)}
	exit := train.Exit{Lost: true}
	if a.Exit != nil {
		exit = *a.Exit
	}
	whole := r.Ended == "finished" || job.Spec.MaxEpochs > 0 && v.EpochsDone >= job.Spec.MaxEpochs || job.ConvergedEpochs > 0
	clean := exit.Code == 0 && exit.Signal == "" && !exit.Lost && exit.Message == ""
	switch {
	case a.Stop == train.StopCancel && !(clean && !exit.Forced && !r.StopAnswered):
		v.Outcome = train.OutcomeCancelled
	case clean && whole && r.Ended != "failed":
		v.Outcome = train.OutcomeSucceeded
		v.Note = converged(job)
	case a.Stop == train.StopConverged && exit.Forced:
		v.Outcome = train.OutcomeSucceeded
		v.Note = converged(job) + "; it did not leave when asked and was ended"
	case a.Stop == train.StopOverspent && (exit.Forced || clean && r.StopAnswered):
		v.Outcome = train.OutcomeFailed
		v.Reason = tooExpensive(job)
	case exit.Forced && (a.Stop == train.StopPreempt || a.Stop == train.StopRescale || a.Stop == train.StopRetune):
		v.Outcome, v.Forced = train.OutcomePreempted, true
	case exit.Forced || exit.Lost || exit.Signal != "" || a.Memory > 0 && exit.OutOfDeviceMemory(): // a neighbour may have had what it lacked
		return lost(v, a, r, job, exit)
	case clean && r.Ended == "failed":
		v.Outcome = train.OutcomeFailed
		v.Reason = train.Reason{Code: "ReportedFailure", Message: "the program reported a failure and ended with status 0"}
	case clean && r.StopAnswered:
		v.Outcome = train.OutcomePreempted
	case clean:
		v.Outcome = train.OutcomeSucceeded
		v.Note = note(v.EpochsDone, r, job)
	default:
		v.Outcome = train.OutcomeFailed
		v.Reason = failure(exit)
	}
	return v
}

// converged tells of a success before the last epoch; empty where the job did them all.
func converged(job train.Job) string {
	if job.ConvergedEpochs == 0 {
		return ""
	}
	return fmt.Sprintf("the loss had converged after %d of %d epochs", job.ConvergedEpochs, job.Spec.MaxEpochs)
}

// tooExpensive is the reason of a job that its group does not want to pay for.
func tooExpensive(job train.Job) train.Reason {
	return train.Reason{Code: "TooExpensive", Message: job.Overspent, Hint: "submit it again: its group has learned from it"}
}

// note tells of a success with fewer epochs than asked. A job that never spoke reports none, and nothing is wrong with that.
func note(done int, r train.AttemptReport, job train.Job) string {
	if !r.Spoke || job.Spec.MaxEpochs <= done {
		return ""
	}
	return fmt.Sprintf("ended with status 0 after %d of %d epochs were reported", done, job.Spec.MaxEpochs)
}

func failure(e train.Exit) train.Reason {
	if e.Reason.Code != "" {
		return e.Reason
	}
	if e.Message != "" {
		return train.Reason{Code: "NotStarted", Message: e.Message, Hint: "correct the submission and submit it under another id"}
	}
	return train.Reason{
		Code: "ExitStatus", Message: fmt.Sprintf("the program ended with status %d", e.Code), Hint: "its last output is below; all of it is in the job's logs",
	}
}

// lost decides between another attempt and giving up.
func lost(v Verdict, a train.Attempt, r train.AttemptReport, job train.Job, e train.Exit) Verdict {
	a.Outcome = train.OutcomeRecovering
	row := lostBeforeNext(a, r)
	if e.Unstarted {
		v.Outcome, v.Retry = train.OutcomeRecovering, RetryDelay(unstartedBeforeNext(a))
		return v
	}
	limit := train.DefaultMaxRestarts
	if job.Spec.MaxRestarts != nil {
		limit = *job.Spec.MaxRestarts
	}
	if row > limit {
		v.Outcome = train.OutcomeFailed
		v.Reason = train.Reason{
			Code:    "TooManyRestarts",
			Message: fmt.Sprintf("%s; %d attempts in a row ended so without finishing an epoch, max_restarts is %d", how(e), row, limit),
			Hint:    cmp.Or(e.Reason.Hint, "look at the logs for what all of them have in common (memory?)"),
		}
		return v
	}
	v.Outcome = train.OutcomeRecovering
	v.Retry = RetryDelay(row)
	return v
}

func how(e train.Exit) string {
	switch {
	case e.Reason.Message != "":
		return e.Reason.Message
	case e.OutOfDeviceMemory():
		return "out of memory of a device that it may share"
	case e.Lost:
		return "the processes vanished"
	case e.Forced:
		return "the processes were ended from outside"
	default:
		return "killed by " + e.Signal
	}
}

// lostBeforeNext counts the attempts in a row that were lost without finishing an epoch, up to and including a.
func lostBeforeNext(a train.Attempt, r train.AttemptReport) int {
	if r.EpochsDone > a.StartedEpochs {
		return 0
	}
	if a.Outcome == train.OutcomeRecovering && !unstarted(a) {
		return a.LostInARow + 1
	}
	return a.LostInARow
}

// unstarted says that not all processes of a ever ran, for which its code is not to blame.
func unstarted(a train.Attempt) bool { return a.Exit != nil && a.Exit.Unstarted }

// unstartedBeforeNext counts the attempts in a row whose processes never all ran, up to and including a.
func unstartedBeforeNext(a train.Attempt) int {
	if unstarted(a) {
		return a.UnstartedInARow + 1
	}
	return 0
}

// RetryDelay is how long the next attempt waits after so many losses in a row: 1 s, 2 s, 4 s and so on up to a minute.
func RetryDelay(lostInARow int) time.Duration {
	return min(time.Second<<min(max(lostInARow-1, 0), 10), longestRetry)
}

// longestRetry bounds RetryDelay.
const longestRetry = time.Minute

// Details gives the verdict that belongs to a recorded outcome, for telling it: the record stands even if a report that came later would now be judged
// otherwise.
func Details(a train.Attempt, r train.AttemptReport, job train.Job) Verdict {
	v := Judge(a, r, job)
	if v.Outcome == a.Outcome {
		return v
	}
	v = Verdict{Outcome: a.Outcome, EpochsDone: v.EpochsDone}
	exit := train.Exit{Lost: true}
	if a.Exit != nil {
		exit = *a.Exit
	}
	switch a.Outcome {
	case train.OutcomeSucceeded:
		v.Note = note(v.EpochsDone, r, job)
	case train.OutcomeFailed:
		v.Reason = failure(exit)
	case train.OutcomePreempted:
		v.Forced = exit.Forced
	case train.OutcomeRecovering:
		v.Retry = max(a.NotBefore.Sub(a.ExitedAt), 0)
	case train.OutcomeCancelled, train.OutcomeNone:
	}
	return v
}
