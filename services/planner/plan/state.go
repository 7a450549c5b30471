package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// What a decision rests on, see package state.
type (
	State   = state.State
	Job     = state.Job
	Limits  = state.Limits
	Holding = state.Holding
	Running = state.Running
	Tuning  = state.Tuning
	Rate    = state.Rate
	Rates   = state.Rates
	Link    = state.Link
)

// What decides, see package policy.
type (
	Policy     = policy.Policy
	FIFO       = policy.FIFO
	SRTF       = policy.SRTF
	Optimus    = policy.Optimus
	Switchyard = policy.Switchyard
)

// Version names the code that decides. It is recorded with each input, so that a replay by other code can say so.
const Version = "phases-7"

// DefaultPolicy is the name of the policy that is used unless another is asked for.
const DefaultPolicy = "switchyard"

// HoldingOf is what a plan gives to a job.
func HoldingOf(a train.Allocation) Holding { return state.HoldingOf(a) }

// Policies are the policies of the live planner by name.
func Policies() map[string]Policy {
	all := map[string]Policy{}
	for _, p := range []Policy{FIFO{}, SRTF{}, Optimus{}, Switchyard{}} {
		all[p.Name()] = p
	}
	return all
}

// PolicyNames are the names of all policies, in alphabetical order.
func PolicyNames() []string { return slices.Sorted(maps.Keys(Policies())) }

// Find gives the policy of a name; the error lists the names.
func Find(name string) (Policy, error) {
	if p, ok := Policies()[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("policy %q: want one of %v", name, PolicyNames())
}
