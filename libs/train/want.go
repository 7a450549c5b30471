package train

import (
	"cmp"
	"time"
)

// Want is what people want of a job.
type Want string

// The wants.
const (
	// WantRun: it runs whenever a plan gives it devices.
	WantRun Want = "run"
	// WantHeld: no attempt of it starts.
	WantHeld Want = "held"
	// WantPaused: no attempt starts, and one that runs leaves by its checkpoint.
	WantPaused Want = "paused"
	// WantCancelled: it ends.
	WantCancelled Want = "cancelled"
)

// Wanted is what people want of a job: desired state, which the services follow whenever they see it.
type Wanted struct {
	State Want `json:"state"`
	// Force ends an attempt that has to leave and cannot be asked to.
	Force bool `json:"force,omitempty"`
	// Leave is the newest attempt that has to leave although the job is to run: it was put at the end of the queue.
	Leave  int       `json:"leave,omitempty"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Wants returns what people want of the job.
func (j Job) Wants() Want {
	if j.CancelRequested {
		return WantCancelled
	}
	return cmp.Or(j.Wanted.State, WantRun)
}

// Leaves reports whether an attempt of the job has to leave by its checkpoint because people want so.
func (j Job) Leaves(a Attempt) bool { return j.Wants() == WantPaused || a.Number <= j.Wanted.Leave }

// Withheld returns why no attempt of the job starts; its code is empty if one may.
func (j Job) Withheld() Reason {
	r := Reason{}
	switch j.Wants() {
	case WantHeld:
		r = Reason{Code: "Held", Message: "held", Hint: "`switchyard release " + string(j.ID) + "` lets it start"}
	case WantPaused:
		r = Reason{Code: "Paused", Message: "paused", Hint: "`switchyard resume " + string(j.ID) + "` lets it go on"}
	case WantRun, WantCancelled:
		return r
	}
	if j.Wanted.By != "" {
		r.Message += " by " + j.Wanted.By
	}
	if j.Wanted.Reason != "" {
		r.Message += ": " + j.Wanted.Reason
	}
	return r
}

// QueuedAt is the time by which the job is ordered in the queue: waiting for other jobs gives it no place.
func (j Job) QueuedAt() time.Time {
	queued := j.SubmittedAt
	for _, at := range []time.Time{j.ReadyAt, j.RequeuedAt} {
		if at.After(queued) {
			queued = at
		}
	}
	return queued
}

// Under returns the state of a waiting job once people want w: it may be held or paused.
func (s State) Under(w Want) State {
	switch {
	case s != StateQueued && s != StatePreempted && s != StateRecovering && s != StateHeld && s != StatePaused:
		return s
	case w == WantHeld:
		return StateHeld
	case w == WantPaused:
		return StatePaused
	case s == StateHeld || s == StatePaused:
		return StateQueued
	}
	return s
}
