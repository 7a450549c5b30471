// Package pipeline decides on the system parameters of one running trial, epoch by epoch: how many cores, how much memory, and whatever else can change
// without changing what is learnt. The first epoch shows what the default costs; whether a later one tries another setting is a bet that the epochs which are
// left must repay (Rocha et al., "PipeTune", Middleware'20, probes always).
//
// It decides nothing about hyper-parameters, and does not know how a setting is applied. A decision is a function of the trial and of what earlier trials
// taught alone, so the live service and the simulator decide alike.
package pipeline

import (
	"maps"
	"math"
	"slices"
)

// Setting is a value, more than 0, for each system parameter.
type Setting map[string]float64

// Equal says whether two settings are the same.
func (s Setting) Equal(other Setting) bool { return maps.Equal(s, other) }

// Parameters that mean something to the rules; others are numbers with a name.
const (
	Cores  = "cores"
	Memory = "memory_mib"
)

// Factor is a system parameter with the values that may be chosen, the default first.
type Factor struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// Space is what may be chosen.
type Space []Factor

// Settings are all combinations: the default, then those that differ from it in one factor, factor by factor, then the rest.
func (s Space) Settings() []Setting {
	all := []Setting{{}}
	for _, f := range s {
		var wider []Setting
		for _, setting := range all {
			for _, v := range f.Values {
				next := maps.Clone(setting)
				next[f.Name] = v
				wider = append(wider, next)
			}
		}
		all = wider
	}
	place := func(x Setting) int {
		moved := s.moved(x)
		if len(moved) > 1 {
			return len(s) + 1
		}
		return slices.Max(append(moved, 0))
	}
	slices.SortStableFunc(all, func(a, b Setting) int { return place(a) - place(b) })
	return all
}

// moved are the factors, counted from 1, in which a setting differs from the default.
func (s Space) moved(x Setting) []int {
	var moved []int
	for i, f := range s {
		if x[f.Name] != f.Values[0] {
			moved = append(moved, i+1)
		}
	}
	return moved
}

// Epoch is one that has ended.
type Epoch struct {
	Setting Setting `json:"setting"`
	// Cost is what is to be made small: seconds, joules, or a mix of both. It is in the same unit for all epochs of a trial.
	Cost float64 `json:"cost"`
	// Failed says that the trial could not run at this setting, for example for want of memory.
	Failed bool `json:"failed,omitempty"`
	// BusyCores is how many cores were busy on average, 0 where nobody measured.
	BusyCores float64 `json:"busy_cores,omitempty"`
}

// Trial is one training under way. It is all that a rule knows of it.
type Trial struct {
	// Workload is the same for trainings whose epochs cost the same: the same code on the same data with the same batch size. It is known at submission.
	Workload string `json:"workload"`
	// Kind is the same for workloads whose profiles look alike, empty where there is no profile.
	Kind string `json:"kind,omitempty"`
	// BatchSize is how many samples a step has, 0 where nobody told.
	BatchSize float64 `json:"batch_size,omitempty"`
	// Unit is what costs are in.
	Unit string `json:"unit,omitempty"`
	// Epochs is how many there will be, those that ended included.
	Epochs int `json:"epochs"`
	// Settings may be chosen, the default first (Space.Settings).
	Settings []Setting `json:"settings"`
	Ended    []Epoch   `json:"ended,omitempty"`
	// Failed are settings at which it could not run, without an epoch to show for it.
	Failed []Setting `json:"failed,omitempty"`
	// Changed is what changes of its setting have cost beside its epochs.
	Changed float64 `json:"changed,omitempty"`
}

// Default is the setting that the user would take.
func (t *Trial) Default() Setting { return t.Settings[0] }

// present is the setting of the newest epoch. Before the first one a trial begins with whatever is wanted.
func (t *Trial) present(wanted Setting) Setting {
	if len(t.Ended) == 0 {
		return wanted
	}
	return t.Ended[len(t.Ended)-1].Setting
}

// left is how many epochs there are to come.
func (t *Trial) left() int { return max(t.Epochs-len(t.Ended), 0) }

// spent is what the ended epochs cost.
func (t *Trial) spent() float64 {
	sum := 0.0
	for _, e := range t.Ended {
		sum += e.Cost
	}
	return sum
}

// Known says whether earlier trials of its workload have measured anything.
func (t *Trial) Known(known []Record) bool { return len(ownRecord(t, known).Measured) > 0 }

// Measured says whether it or an earlier trial of its workload has measured what an epoch costs at a setting.
func (t *Trial) Measured(s Setting, known []Record) bool {
	r := ownRecord(t, Learn(known, t))
	return r.find(s) >= 0
}

// Rule decides on the next epoch of a trial. Next is pure: the same trial and the same records give the same setting.
type Rule interface {
	Name() string
	Next(t *Trial, known []Record) Setting
}

// Fixed keeps the default.
type Fixed struct{}

// Name is "fixed".
func (Fixed) Name() string { return "fixed" }

// Next is always the default.
func (Fixed) Next(t *Trial, _ []Record) Setting { return t.Default() }

// Probe is the published rule: one epoch at the default, then one at each setting that differs from it in one factor, the rest at the fastest of them. Of a
// workload that was seen before, what was fastest then is taken from the second epoch on.
type Probe struct{}

// Name is "probe".
func (Probe) Name() string { return "probe" }

// Next goes through the settings, then keeps to the cheapest, of equals the one tried first.
func (Probe) Next(t *Trial, known []Record) Setting {
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

// Known keeps to the cheapest setting that earlier trials of the workload found, the default where they found none. It probes nothing.
type Known struct{}

// Name is "known".
func (Known) Name() string { return "known" }

// Next is the setting of the least mean cost, of equals the one nearest to the default.
func (Known) Next(t *Trial, known []Record) Setting {
	r := ownRecord(t, known)
	best, least := t.Default(), math.Inf(1)
	for _, s := range t.Settings {
		if i := r.find(s); i >= 0 && r.Measured[i].Cost < least && !r.ruledOut(s) {
			best, least = s, r.Measured[i].Cost
		}
	}
	return best
}

// OneFactor says whether two settings differ in exactly one factor.
func OneFactor(a, b Setting) bool {
	differ := 0
	for name, value := range a {
		if b[name] != value {
			differ++
		}
	}
	return differ == 1
}

// Always keeps one setting: the oracle of a simulation.
type Always struct{ Setting Setting }

// Name is "oracle".
func (Always) Name() string { return "oracle" }

// Next is that setting.
func (a Always) Next(*Trial, []Record) Setting { return a.Setting }
