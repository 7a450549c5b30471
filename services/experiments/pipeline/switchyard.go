package pipeline

import (
	"maps"
	"math"
)

// Switchyard probes where the epochs that are left are expected to repay it, and where a probe that disappoints cannot make the trial much slower than the
// default would.
type Switchyard struct {
	Prior Prior
	// Allowance is the share of what the trial would cost at the default that its probes may lose.
	Allowance float64
	// ChangeCost is what a change of the setting costs, in the unit of the epochs' cost.
	ChangeCost float64
}

// StandardRule is Switchyard with the standard prior; its probes may lose 3 %.
func StandardRule() Switchyard { return Switchyard{Prior: StandardPrior(), Allowance: 0.03} }

// Name is "switchyard".
func (Switchyard) Name() string { return "switchyard" }

// Next is the default as long as nothing is known of the workload, and then the probe of the greatest expected gain, or the cheapest known setting where there
// is none worth its price.
func (r Switchyard) Next(t *Trial, known []Record) Setting {
	b := newBelief(r.Prior, t, known)
	best, cheapest := b.cheapest()
	if best == nil {
		return t.Default()
	}
	left := float64(t.left() - 1)
	budget := (1+r.Allowance)*float64(t.Epochs)*math.Exp(b.cost(t.Default()).mean) - t.spent() - left*cheapest
	choice, most := best, 0.0
	for _, s := range t.Settings {
		if b.own.find(s) >= 0 || b.own.ruledOut(s) {
			continue
		}
		e := b.cost(s)
		// What a probe loses is lost in one epoch; what it finds is gained in all that follow. There and back are two changes.
		gain := left*(cheapest-e.least(cheapest)) + cheapest - e.expected() - 2*r.ChangeCost
		if gain > most && t.dearest(s, e)+2*r.ChangeCost <= budget {
			choice, most = s, gain
		}
	}
	return choice
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
func (t *Trial) dearest(s Setting, e estimate) float64 {
	most := math.Exp(e.mean + e.deviation)
	for _, past := range t.Ended {
		cores, fewer := past.Setting[Cores], s[Cores]
		as := maps.Clone(past.Setting)
		as[Cores] = fewer
		if past.BusyCores > 0 && fewer < cores && as.Equal(s) {
			most = min(most, past.Cost*(1+past.BusyCores/cores*(cores/fewer-1)))
		}
	}
	return most
}
