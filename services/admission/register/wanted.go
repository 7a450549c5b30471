package register

import (
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

var errWant = errors.New("want run, held or paused")

// wanted folds the wish of a person into the desired state. The first of equal wishes stays.
func wanted(job *train.Job, f Fact, b *event.Wanted) (changed bool, err error) {
	if b.State != train.WantRun && b.State != train.WantHeld && b.State != train.WantPaused {
		return false, fmt.Errorf("fold job %s: wanted state %.40q: %w", job.ID, b.State, errWant)
	}
	ended := job.State.Terminal()
	same := b.State == job.Wants() && b.Force == job.Wanted.Force && !b.Requeue
	switch {
	case ended && job.Spec.Array != "": // its jobs can be resumed
		return false, nil
	case ended && (b.State != train.WantRun || b.Requeue), !ended && (job.CancelRequested || same):
		return false, nil
	}
	job.Wanted = train.Wanted{State: b.State, Force: b.Force, By: clip(b.By, maxText/4), Reason: clip(b.Reason, maxText/4), At: f.Time}
	if b.Requeue {
		job.RequeuedAt, job.Wanted.Leave = f.Time, job.Attempt
	}
	if ended {
		reopen(job)
	}
	explainWish(job, b.Requeue, ended)
	return true, nil
}

func explainWish(job *train.Job, requeued, ended bool) {
	wish, by := job.Wanted, ""
	if wish.By != "" {
		by = " by " + wish.By
	}
	switch why := job.Withheld(); {
	case why.Code != "" && waits(job.State):
		explain(job, why.Code, why.Message, why.Hint)
	case wish.State == train.WantPaused:
		explain(job, "WillPause", "leaves at its next checkpoint: "+why.Message, why.Hint)
	case wish.State == train.WantHeld:
		explain(job, "WillBeHeld", "does not start again once it has left: "+why.Message, why.Hint)
	case requeued:
		explain(job, "Requeued", join("put at the end of the queue"+by, wish.Reason), "")
	case ended && job.EpochsDone == 0 && job.EpochStep == 0:
		explain(job, "Resumed", join("resumed"+by+", begins again", wish.Reason), "")
	case ended:
		explain(job, "Resumed", join(fmt.Sprintf("resumed%s, goes on after %s", by, reached(job)), wish.Reason), "")
	default:
		explain(job, "Released", join("may run again: released"+by, wish.Reason), "")
	}
}

// reopen begins another life of a job that failed or was cancelled. What it has used stays with it.
func reopen(job *train.Job) {
	job.Resumed++
	job.CancelRequested, job.Overspent = false, ""
	job.FinishedAt, job.ExitCode, job.LogTail = time.Time{}, nil, ""
	job.PredictedFinish = time.Time{}
}
