// Package pipeline decides on the system parameters of one running trial, epoch by epoch: cores, memory, and any other
// parameter that can change without changing the result of the training. The first epoch shows the cost of the default;
// whether a later one tries another setting is a bet that the remaining epochs must repay (Rocha et al., "PipeTune",
// Middleware'20, probes always).
//
// The package decides nothing about hyper-parameters, and does not know how a setting is applied. A decision is a
// function of the trial and the results of earlier trials alone, so the live service and the simulator decide alike.
package pipeline

import (
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Parameters with a meaning for the rules; others are numbers with a name.
const (
	Cores  = "cores"
	Memory = "memory_mib"
)

// Factor is a system parameter with its possible values, the default first.
type Factor struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// Space is the set of possible settings.
type Space []Factor

// Settings returns all combinations: the default, then those that differ from it in one factor, factor by factor, then
// the rest.
func (s Space) Settings() []contract.SettingValues {
	all := []contract.SettingValues{{}}
	for _, f := range s {
		var wider []contract.SettingValues
		for _, setting := range all {
			for _, v := range f.Values {
				next := maps.Clone(setting)
				next[f.Name] = v
				wider = append(wider, next)
			}
		}
		all = wider
	}
	place := func(x contract.SettingValues) int {
		moved := s.moved(x)
		if len(moved) > 1 {
			return len(s) + 1
		}
		return slices.Max(append(moved, 0))
	}
	slices.SortStableFunc(all, func(a, b contract.SettingValues) int { return place(a) - place(b) })
	return all
}

// moved returns the factors, counted from 1, in which a setting differs from the default.
func (s Space) moved(x contract.SettingValues) []int {
	var moved []int
	for i, f := range s {
		if x[f.Name] != f.Values[0] {
			moved = append(moved, i+1)
		}
	}
	return moved
}

// Epoch is an ended epoch.
type Epoch struct {
	Setting contract.SettingValues `json:"setting"`
	// Cost is the quantity to minimise: seconds, joules, or a mix of both. It has the same unit for all epochs of a
	// trial.
	Cost float64 `json:"cost"`
	// Failed reports that the trial could not run at this setting, for example for lack of memory.
	Failed bool `json:"failed,omitempty"`
	// BusyCores is the mean number of busy cores, 0 if not measured.
	BusyCores float64 `json:"busy_cores,omitempty"`
}

// Trial is one running training. It is all that a rule knows about it.
type Trial struct {
	// Workload is the same for trainings whose epochs cost the same: the same code on the same data with the same batch
	// size. It is known at submission.
	Workload string `json:"workload"`
	// Name is for people.
	Name string `json:"name,omitempty"`
	// Kind is the same for workloads with similar profiles, empty without a profile.
	Kind string `json:"kind,omitempty"`
	// BatchSize is the number of samples of a step, 0 if unknown.
	BatchSize float64 `json:"batch_size,omitempty"`
	// Unit is the unit of costs.
	Unit string `json:"unit,omitempty"`
	// Epochs is the total number of epochs, including those that ended.
	Epochs int `json:"epochs"`
	// Settings are the possible settings, the default first (Space.Settings).
	Settings []contract.SettingValues `json:"settings"`
	Ended    []Epoch                  `json:"ended,omitempty"`
	// Failed are settings at which it could not run, without a finished epoch.
	Failed []contract.SettingValues `json:"failed,omitempty"`
	// Changed is the cost of changes of its setting beside its epochs.
	Changed float64 `json:"changed,omitempty"`
}

// Default returns the user's own setting.
func (t *Trial) Default() contract.SettingValues { return t.Settings[0] }

// present returns the setting of the newest epoch, or wanted before the first: a trial begins with the wanted setting.
func (t *Trial) present(wanted contract.SettingValues) contract.SettingValues {
	if len(t.Ended) == 0 {
		return wanted
	}
	return t.Ended[len(t.Ended)-1].Setting
}

// left returns the number of remaining epochs.
func (t *Trial) left() int { return max(t.Epochs-len(t.Ended), 0) }

// spent returns the cost of the ended epochs.
func (t *Trial) spent() float64 {
	sum := 0.0
	for _, e := range t.Ended {
		sum += e.Cost
	}
	return sum
}

// Known reports whether earlier trials of its workload have measured anything.
func (t *Trial) Known(known []contract.WorkloadCosts) bool {
	return len(ownRecord(t, known).Measured) > 0
}

// Measured reports whether this or an earlier trial of its workload has measured the cost of an epoch at a setting.
func (t *Trial) Measured(s contract.SettingValues, known []contract.WorkloadCosts) bool {
	r := ownRecord(t, Learn(known, t))
	return r.find(s) >= 0
}

// Rule decides on the next epoch of a trial. Next is pure: the same trial and the same records give the same setting.
type Rule interface {
	Next(t *Trial, known []contract.WorkloadCosts) contract.SettingValues
}

// Probe is the published rule: one epoch at the default, then one at each setting that differs from it in one factor,
// the rest at the fastest of them. For a workload seen before, it uses the fastest setting of that time from the second
// epoch on.
type Probe struct{}

// Next goes through the settings, then stays at the cheapest; of equals, the one tried first.
func (Probe) Next(t *Trial, known []contract.WorkloadCosts) contract.SettingValues {
	if len(t.Ended) == 0 {
		return t.Default()
	}
	r := ownRecord(t, known)
	recurs := len(r.Measured) > 0
	if !recurs {
		r = ownRecord(t, Learn(nil, t))
	}
	best, least := t.Default(), math.Inf(1)
	for _, s := range t.Settings {
		i := r.find(s)
		switch {
		case i >= 0 && r.Measured[i].Cost < least:
			best, least = s, r.Measured[i].Cost
		case i < 0 && !recurs && OneFactor(t.Default(), s) && !r.ruledOut(s):
			return s
		}
	}
	return best
}

// Known uses the cheapest setting found by earlier trials of the workload, or the default without any. It probes
// nothing.
type Known struct{}

// Next returns the setting of the least mean cost; of equals, the one nearest to the default.
func (Known) Next(t *Trial, known []contract.WorkloadCosts) contract.SettingValues {
	r := ownRecord(t, known)
	best, least := t.Default(), math.Inf(1)
	for _, s := range t.Settings {
		if i := r.find(s); i >= 0 && r.Measured[i].Cost < least && !r.ruledOut(s) {
			best, least = s, r.Measured[i].Cost
		}
	}
	return best
}

// OneFactor reports whether two settings differ in exactly one factor.
func OneFactor(a, b contract.SettingValues) bool {
	differ := 0
	for name, value := range a {
		if b[name] != value {
			differ++
		}
	}
	return differ == 1
}
