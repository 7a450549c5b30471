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

// SameState as a Transition's To leaves the state unchanged.
const SameState State = "*"

// Transition is one row of the table: a fact moves a job from one of the states to another.
type Transition struct {
	Fact string
	From []State
	To   State
}

// Transitions returns the whole table. Facts of different services may overtake each other on the bus, so a fact is
// legal in every state in which it can truthfully arrive; terminal states absorb everything.
func Transitions() []Transition {
	waiting := []State{StateSubmitted, StateQueued, StatePreempted, StateRecovering}
	running := []State{StateProfiling, StateRunning, StatePreempting}
	active := slices.Concat([]State{StateStarting}, running)
	all := slices.Concat(waiting, active)
	return []Transition{
		{"submitted", []State{StateNone}, StateSubmitted},
		{"admitted", []State{StateSubmitted}, StateQueued},
		{"rejected", []State{StateNone, StateSubmitted}, StateRejected},
		{"tuned", all, SameState},
		{"queued", waiting, SameState},
		{"queued", []State{StateStarting}, StateQueued}, // the devices were taken back before anything started
		{"queued", running, SameState},
		{"planned", []State{StateQueued, StatePreempted, StateRecovering}, StateStarting},
		{"planned", active, SameState},
		{"started", all, StateProfiling},
		{"epoch_ended", []State{StateProfiling, StateStarting}, StateRunning},
		{"epoch_ended", []State{StateRunning, StatePreempting, StatePreempted, StateRecovering}, SameState},
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
