package state

import (
	"slices"
	"time"
)

// Rate is what energy costs from a moment until the next rate, in any unit: only ratios count.
type Rate struct {
	From time.Time `json:"from"`
	Cost float64   `json:"cost"`
	// PricePerKWh and GramsPerKWh are what Cost is made of; 0 if unknown.
	PricePerKWh float64 `json:"price_per_kwh,omitempty"`
	GramsPerKWh float64 `json:"grams_per_kwh,omitempty"`
}

// Rates are ordered by time. Those far ahead are forecasts; the last one ends the forecast, its cost is of no use.
type Rates []Rate

// Mean is the mean rate over a time; false if the forecast does not cover all of it.
func (r Rates) Mean(from, to time.Time) (Rate, bool) {
	if len(r) < 2 || from.Before(r[0].From) || to.After(r[len(r)-1].From) || !from.Before(to) {
		return Rate{}, false
	}
	sum, whole := Rate{From: from}, to.Sub(from).Seconds()
	for i := range r[:len(r)-1] {
		begin, end := later(r[i].From, from), sooner(r[i+1].From, to)
		if begin.Before(end) {
			seconds := end.Sub(begin).Seconds()
			sum.Cost += r[i].Cost * seconds
			sum.PricePerKWh += r[i].PricePerKWh * seconds
			sum.GramsPerKWh += r[i].GramsPerKWh * seconds
		}
	}
	sum.Cost, sum.PricePerKWh, sum.GramsPerKWh = sum.Cost/whole, sum.PricePerKWh/whole, sum.GramsPerKWh/whole
	return sum, true
}

// LeastSaving is the part of the cost that a deferral must save.
const LeastSaving = 0.02

// BestStart returns the mean rate of the start, from now until latest, at which a run of such a length costs least, the
// soonest among equals, and that of a start now. The two are equal if no later start saves LeastSaving of the cost. The
// mean cost over a sliding window bends only where the window begins or ends at the beginning of a rate.
func (r Rates) BestStart(now, latest time.Time, length time.Duration) (best, atOnce Rate) {
	atOnce, known := r.Mean(now, now.Add(length))
	if !known || !(atOnce.Cost > 0) {
		return Rate{From: now}, Rate{From: now}
	}
	starts := []time.Time{latest}
	for _, rate := range r {
		starts = append(starts, rate.From, rate.From.Add(-length))
	}
	slices.SortFunc(starts, time.Time.Compare)
	best = atOnce
	least := atOnce.Cost * (1 - LeastSaving)
	for _, at := range starts {
		if !at.After(now) || at.After(latest) {
			continue
		}
		if mean, known := r.Mean(at, at.Add(length)); known && mean.Cost < least {
			best, least = mean, mean.Cost
		}
	}
	return best, atOnce
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
