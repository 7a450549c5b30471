package pipeline

import (
	"maps"
	"math"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Switchyard probes a setting if the remaining epochs are expected to repay it, and if a disappointing probe cannot
// make the trial much slower than the default would.
type Switchyard struct {
	Prior Prior
	// Allowance is the fraction of the trial's cost without probes that probes may lose.
	Allowance float64
	// Caution is the number of standard deviations by which a probe is assumed to cost more than expected.
	Caution float64
	// Again is the number of further trials of a workload expected, which its probes serve too.
	Again float64
	// Changes are the costs of changing parameters that need a restart, in the unit of the epochs' cost; others change
	// at once and at no cost. If several change together the largest cost counts.
	Changes map[string]float64
}

// StandardRule aims at a loss of 2.5 % from disappointing probes, so that 3 % hold when the last of them is worse than
// expected.
func StandardRule() Switchyard {
	return Switchyard{Prior: StandardPrior(), Allowance: 0.025, Caution: 1, Again: 1}
}

// Next returns the default as long as the workload is unknown, and then the probe with the greatest expected gain. If
// no probe is worth its price it returns the cheapest known setting, or the present one if the remaining epochs do not
// repay the change.
func (r Switchyard) Next(t *Trial, known []contract.WorkloadCosts) contract.SettingValues {
	b := newBelief(r.Prior, t, known)
	best, cheapest := b.cheapest()
	if best == nil {
		return t.Default()
	}
	now, left := t.present(best), float64(t.left()-1)
	if r.restarts(now, best) && b.own.find(now) >= 0 && !b.own.ruledOut(now) {
		// The restart takes place at the end of the epoch that has just begun.
		if here := math.Exp(b.cost(now).mean); left*(here-cheapest) <= r.change(now, best) {
			best, cheapest = now, here
		}
	}
	budget := r.allowed(t, known, b) - t.spent() - t.Changed - left*cheapest
	choice, most := best, 0.0
	for _, s := range t.Settings {
		if b.own.find(s) >= 0 || b.own.ruledOut(s) || left == 0 && r.restarts(now, s) {
			continue
		}
		e := b.cost(s)
		// A probe loses in one epoch; its finding pays in all that follow. There and back are two changes, and going
		// back by restart takes one more epoch.
		changes, dearest := r.change(now, s)+r.change(s, best), r.dearest(t, s, e)
		gain := (left+r.Again*float64(t.Epochs))*(cheapest-e.least(cheapest)) + cheapest - e.expected() - changes
		if r.restarts(s, best) {
			gain -= e.expected() - e.least(cheapest)
			dearest += max(dearest-cheapest, 0)
		}
		if gain > most && dearest+changes <= budget {
			choice, most = s, gain
		}
	}
	return choice
}

// restarts reports whether changing from one setting to another needs a restart.
func (r Switchyard) restarts(from, to contract.SettingValues) bool {
	for name := range r.Changes {
		if from[name] != to[name] {
			return true
		}
	}
	return false
}

// change returns the cost of changing from one setting to another.
func (r Switchyard) change(from, to contract.SettingValues) float64 {
	dearest := 0.0
	for name, cost := range r.Changes {
		if from[name] != to[name] {
			dearest = max(dearest, cost)
		}
	}
	return dearest
}

// allowed returns the largest cost of the whole trial: little more than without probes, which is at the default, or at
// the cheapest setting found by earlier trials.
func (r Switchyard) allowed(t *Trial, known []contract.WorkloadCosts, b *belief) float64 {
	epoch := math.Exp(b.cost(t.Default()).mean)
	for _, m := range ownRecord(t, known).Measured {
		epoch = min(epoch, m.Cost)
	}
	return (1 + r.Allowance) * float64(t.Epochs) * epoch
}

// cheapest returns the setting of the least cost among the measured ones that may be chosen, or nil.
func (b *belief) cheapest() (best contract.SettingValues, cost float64) {
	cost = math.Inf(1)
	for _, s := range b.trial.Settings {
		if b.own.find(s) < 0 || b.own.ruledOut(s) {
			continue
		}
		if c := math.Exp(b.cost(s).mean); c < cost {
			best, cost = s, c
		}
	}
	return best, cost
}

// dearest returns the highest cost assumed of an epoch at a setting: a standard deviation more than expected. If the
// number of busy cores is known, fewer cores can do no worse than stretch the time at which all were busy: with a share
// u of c cores busy, c' of them take at most 1+u*(c/c'-1) times as long.
func (r Switchyard) dearest(t *Trial, s contract.SettingValues, e estimate) float64 {
	most := math.Exp(e.mean + r.Caution*e.deviation)
	for _, past := range t.Ended {
		cores, fewer := past.Setting[Cores], s[Cores]
		as := maps.Clone(past.Setting)
		as[Cores] = fewer
		if past.Cost > 0 && past.BusyCores > 0 && fewer < cores && as.Equal(s) {
			most = min(most, past.Cost*(1+past.BusyCores/cores*(cores/fewer-1)))
		}
	}
	return most
}
