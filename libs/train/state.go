package train

import (
	"errors"
	"fmt"
	"slices"
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

// Next returns the state of a job after the fact.
func Next(from State, fact string) (State, error) {
	for _, t := range Transitions() {
		if t.Fact == fact && slices.Contains(t.From, from) {
			if t.To == SameState {
				return from, nil
			}
			return t.To, nil
		}
	}
	return from, fmt.Errorf("%w: fact %q in state %q", ErrIllegal, fact, from)
}
