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
	job.Wanted = wish(job, f, b)
	if b.Requeue {
		job.RequeuedAt, job.Wanted.Leave = f.Time, job.Attempt
	}
	if ended {
		reopen(job)
	}
	explainWish(job, b, ended)
	return true, nil
}

// wish returns what is wanted of the job from now on. If only its place in the queue changes, who holds it back and why
// stays.
func wish(job *train.Job, f Fact, b *event.Wanted) train.Wanted {
	if b.Requeue && b.State == job.Wants() && b.State != train.WantRun {
		kept := job.Wanted
		kept.Force = b.Force
		return kept
	}
	return train.Wanted{State: b.State, Force: b.Force, By: clip(b.By, maxText/4), Reason: clip(b.Reason, maxText/4), At: f.Time}
}

func explainWish(job *train.Job, asked *event.Wanted, ended bool) {
	by, place := "", ""
	if asked.By != "" {
		by = " by " + clip(asked.By, maxText/4)
	}
	reason := clip(asked.Reason, maxText/4)
	requeued := join("put at the end of the queue"+by, reason)
	if asked.Requeue {
		place = requeued + "; "
	}
	switch why := job.Withheld(); {
	case why.Code != "" && waits(job.State):
		explain(job, why.Code, place+why.Message, why.Hint)
	case job.Wanted.State == train.WantPaused && job.Wanted.Force:
		explain(job, "WillPause", place+"leaves at its next checkpoint, or is ended if it cannot be asked to: "+why.Message, why.Hint)
	case job.Wanted.State == train.WantPaused:
		explain(job, "WillPause", place+"leaves at its next checkpoint: "+why.Message, why.Hint)
	case job.Wanted.State == train.WantHeld:
		explain(job, "WillBeHeld", place+"does not start again once it has left: "+why.Message, why.Hint)
	case asked.Requeue:
		explain(job, "Requeued", requeued, "")
	case ended && job.EpochsDone == 0 && job.EpochStep == 0:
		explain(job, "Resumed", join("resumed"+by+", begins again", reason), "")
	case ended:
		explain(job, "Resumed", join(fmt.Sprintf("resumed%s, goes on after %s", by, reached(job)), reason), "")
	default:
		explain(job, "Released", join("may run again: released"+by, reason), "")
	}
}

// reopen begins another life of a job that failed or was cancelled. What it has used stays with it.
func reopen(job *train.Job) {
	job.Resumed++
	job.CancelRequested, job.Overspent = false, ""
	job.FinishedAt, job.ExitCode, job.LogTail = time.Time{}, nil, ""
	job.PredictedFinish = time.Time{}
}
