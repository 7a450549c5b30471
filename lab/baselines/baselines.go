// Package baselines holds the policies that Switchyard is compared with on published traces, as they were published:
// no phase around them reserves, backfills, shares or preempts.
package baselines

import (
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
)

// All returns the policies for traces, by name: the published ones, Switchyard, and Switchyard with the truth in
// place of estimates.
func All() map[string]policy.Policy {
	all := map[string]policy.Policy{}
	for _, p := range []policy.Policy{
		FIFO{}, SRTF{}, DRF{}, Tetris{}, MaxThroughput{}, Tiresias{}, Optimus{}, Pollux{}, policy.Switchyard{}, SwitchyardOracle{},
	} {
		all[p.Name()] = p
	}
	return all
}

// Names returns the names of all policies, in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(All())) }

// Find returns the policy of a name. gavel is another name of max-throughput. The error lists the names.
func Find(name string) (policy.Policy, error) {
	if name == "gavel" {
		name = MaxThroughput{}.Name()
	}
	if p, ok := All()[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("policy %q: want one of %v", name, Names())
}

// plain makes a policy stand alone.
type plain struct{}

// Plain is true: no phase changes what the policy decides.
func (plain) Plain() bool { return true }
