package train

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// State is the state of a job as a person sees it.
type State string

// The states.
const (
	StateNone       State = ""
	StateSubmitted  State = "submitted"
	StateQueued     State = "queued"
	StateStarting   State = "starting"
	StateProfiling  State = "profiling" // runs, first epoch not finished yet
	StateRunning    State = "running"
	StatePreempting State = "preempting" // asked to stop at the epoch's end
	StatePreempted  State = "preempted"
	StateRecovering State = "recovering" // an attempt was lost, the next one follows
	StateHeld       State = "held"       // waits; no attempt starts until it is released
	StatePaused     State = "paused"     // likewise, until it is resumed
	StateSucceeded  State = "succeeded"
	StateFailed     State = "failed"
	StateCancelled  State = "cancelled"
	StateRejected   State = "rejected"
)

// Terminal reports whether the state is final.
func (s State) Terminal() bool {
	return s == StateSucceeded || s == StateFailed || s == StateCancelled || s == StateRejected
}

// Active reports whether processes of the job may exist.
func (s State) Active() bool {
	return s == StateStarting || s == StateProfiling || s == StateRunning || s == StatePreempting
}

// ReasonAdmitted is the reason of a queued job that no plan has said anything about.
const ReasonAdmitted = "Admitted"

// LiveStates returns the states of jobs that have not ended.
func LiveStates() []State {
	return []State{
		StateSubmitted, StateQueued, StatePreempted, StateRecovering, StateHeld, StatePaused, StateStarting, StateProfiling, StateRunning, StatePreempting,
	}
}

// States returns all states of jobs.
func States() []State {
	return append(LiveStates(), StateSucceeded, StateFailed, StateCancelled, StateRejected)
}

// SameState as a Transition's To leaves the state unchanged.
const SameState State = "*"

// Transition is one row of the table: a fact moves a job from one of the states to another.
type Transition struct {
	Fact string
	From []State
	To   State
}

// Transitions returns the whole table. Facts of different services may overtake each other on the bus, so a fact is
// legal in every state in which it can truthfully arrive; terminal states absorb everything, except that a person may
// resume a job that failed or was cancelled. A job that waits is shown as held or paused while people want that.
func Transitions() []Transition {
	withheld := []State{StateHeld, StatePaused}
	waiting := slices.Concat([]State{StateSubmitted, StateQueued, StatePreempted, StateRecovering}, withheld)
	running := []State{StateProfiling, StateRunning, StatePreempting}
	active := slices.Concat([]State{StateStarting}, running)
	all := LiveStates()
	whole := States()
	return []Transition{
		{"submitted", []State{StateNone}, StateSubmitted},
		{"admitted", []State{StateSubmitted}, StateQueued},
		{"rejected", []State{StateNone, StateSubmitted}, StateRejected},
		{"tuned", all, SameState},
		{"queued", waiting, SameState},
		{"queued", []State{StateStarting}, StateQueued}, // the devices were taken back before anything started
		{"queued", running, SameState},
		{"planned", []State{StateQueued, StatePreempted, StateRecovering}, StateStarting},
		{"planned", slices.Concat(active, withheld), SameState},
		{"started", all, StateProfiling},
		{"epoch_ended", []State{StateProfiling, StateStarting}, StateRunning},
		{"epoch_ended", slices.Concat([]State{StateRunning, StatePreempting, StatePreempted, StateRecovering}, withheld), SameState},
		{"checkpoint_written", all, SameState},
		{"stop_requested", active, StatePreempting},
		{"stop_withdrawn", []State{StatePreempting}, StateRunning},
		{"stop_withdrawn", slices.Concat(waiting, []State{StateStarting, StateProfiling, StateRunning}), SameState},
		{"preempted", all, StatePreempted},
		{"attempt_lost", all, StateRecovering},
		{"reestimated", all, SameState},
		{"straggling", all, SameState},
		{"outgrew", all, SameState},
		{"converged", all, SameState},
		{"overspent", all, SameState},
		{"dependency_ended", all, SameState},
		{"cancel_requested", all, SameState},
		{"wanted", all, SameState},
		{"wanted", []State{StateFailed, StateCancelled}, StateQueued},
		{"edit_requested", whole, SameState},
		{"edit_decided", whole, SameState},
		{"succeeded", all, StateSucceeded},
		{"failed", all, StateFailed},
		{"cancelled", all, StateCancelled},
	}
}

// ErrIllegal marks a fact that cannot happen in the job's state.
var ErrIllegal = errors.New("illegal transition")

var transitions = Transitions() //nolint:gochecknoglobals // a constant

// Next returns the state of a job after the fact.
func Next(from State, fact string) (State, error) {
	for _, t := range transitions {
		if t.Fact == fact && slices.Contains(t.From, from) {
			if t.To == SameState {
				return from, nil
			}
			return t.To, nil
		}
	}
	return from, fmt.Errorf("%w: fact %q in state %q", ErrIllegal, fact, from)
}

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
	// Leave is the newest attempt that has to leave because the job was put at the end of the queue.
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
