package state

import (
	"slices"
	"time"
)

// Rate is what energy costs from a moment until the next rate, in any unit: only ratios count.
type Rate struct {
	From time.Time `json:"from"`
	Cost float64   `json:"cost"`
}

// Rates are ordered by time. Those far ahead are forecasts; the last one ends the forecast, its cost is of no use.
type Rates []Rate

// Mean is the mean cost over a time; false if the forecast does not cover all of it.
func (r Rates) Mean(from, to time.Time) (float64, bool) {
	if len(r) < 2 || from.Before(r[0].From) || to.After(r[len(r)-1].From) || !from.Before(to) {
		return 0, false
	}
	sum := 0.0
	for i := range r[:len(r)-1] {
		begin, end := later(r[i].From, from), sooner(r[i+1].From, to)
		if begin.Before(end) {
			sum += r[i].Cost * end.Sub(begin).Seconds()
		}
	}
	return sum / to.Sub(from).Seconds(), true
}

// LeastSaving is the part of the cost that a deferral must save.
const LeastSaving = 0.02

// BestStart returns when, from now until latest, a run of such a length costs least, the soonest among equals, and what
// part of the cost of starting now that saves. It returns now if no later start saves LeastSaving. The mean cost over a
// sliding window bends only where the window begins or ends at the beginning of a rate.
func (r Rates) BestStart(now, latest time.Time, length time.Duration) (start time.Time, saving float64) {
	atOnce, known := r.Mean(now, now.Add(length))
	if !known || !(atOnce > 0) {
		return now, 0
	}
	starts := []time.Time{latest}
	for _, rate := range r {
		starts = append(starts, rate.From, rate.From.Add(-length))
	}
	slices.SortFunc(starts, time.Time.Compare)
	best, least := now, atOnce*(1-LeastSaving)
	for _, at := range starts {
		if !at.After(now) || at.After(latest) {
			continue
		}
		if cost, known := r.Mean(at, at.Add(length)); known && cost < least {
			best, least = at, cost
		}
	}
	if best.Equal(now) {
		return now, 0
	}
	return best, 1 - least/atOnce
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
