package pipeline

import (
	"maps"
	"math"
)

// Switchyard probes where the epochs that are left are expected to repay it, and where a probe that disappoints cannot make the trial much slower than the
// default would.
type Switchyard struct {
	Prior Prior
	// Allowance is the share of what the trial would cost without probes that they may lose.
	Allowance float64
	// Caution is by how many standard deviations a probe is taken to cost more than expected.
	Caution float64
	// Again is how many more trials of a workload are expected, which its probes serve too.
	Again float64
	// Changes are what it costs to change each of those parameters that take another start, in the unit of the epochs' cost; the others change at once, and at no
	// cost. Of several that change together the dearest counts.
	Changes map[string]float64
}

// StandardRule aims at a loss of 2.5 % where probes disappoint, so that 3 % hold when the last of them is worse than expected.
func StandardRule() Switchyard {
	return Switchyard{Prior: StandardPrior(), Allowance: 0.025, Caution: 1, Again: 1}
}

// Name is "switchyard".
func (Switchyard) Name() string { return "switchyard" }

// Next is the default as long as nothing is known of the workload, and then the probe of the greatest expected gain. Where there is none worth its price it is
// the cheapest known setting, or the present one where the epochs left do not repay the change.
func (r Switchyard) Next(t *Trial, known []Record) Setting {
	b := newBelief(r.Prior, t, known)
	best, cheapest := b.cheapest()
	if best == nil {
		return t.Default()
	}
	now, left := t.present(best), float64(t.left()-1)
	if r.restarts(now, best) && b.own.find(now) >= 0 && !b.own.ruledOut(now) {
		// It is started again at the end of the epoch that has just begun.
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
		// What a probe loses is lost in one epoch; what it finds is gained in all that follow. There and back are two changes, and who is to be started again
		// to go back stays for another epoch.
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

// restarts says whether to go from one setting to another takes another start.
func (r Switchyard) restarts(from, to Setting) bool {
	for name := range r.Changes {
		if from[name] != to[name] {
			return true
		}
	}
	return false
}

// change is what it costs to go from one setting to another.
func (r Switchyard) change(from, to Setting) float64 {
	dearest := 0.0
	for name, cost := range r.Changes {
		if from[name] != to[name] {
			dearest = max(dearest, cost)
		}
	}
	return dearest
}

// allowed is what the whole trial may cost: little more than without probes, which is at the default, or at the cheapest setting that trials before it found.
func (r Switchyard) allowed(t *Trial, known []Record, b *belief) float64 {
	epoch := math.Exp(b.cost(t.Default()).mean)
	for _, m := range ownRecord(t, known).Measured {
		epoch = min(epoch, m.Cost)
	}
	return (1 + r.Allowance) * float64(t.Epochs) * epoch
}

// cheapest is the setting of the least cost among those that may be chosen and were measured, nil where there is none.
func (b *belief) cheapest() (best Setting, cost float64) {
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

// dearest is what an epoch at a setting is taken to cost at most: a standard deviation more than expected. Where it is known how many cores are busy, fewer
// cores can do no worse than to stretch the time at which all were: with a share u of c cores busy, c' of them take at most 1+u*(c/c'-1) times as long.
func (r Switchyard) dearest(t *Trial, s Setting, e estimate) float64 {
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
