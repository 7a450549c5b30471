package conduct

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// changes are what it costs to change those parameters that take another start of a trial, in the unit of its epochs. Until one was started again it is taken
// to last as long as it lasted from the start of a trial's processes to that of its first epoch.
func (r *Record) changes() map[string]float64 {
	names := map[string]float64{}
	var restarts, starts []float64
	for i := range r.Trials {
		t := &r.Trials[i]
		for _, a := range t.Applied {
			for _, name := range a.Restarts {
				names[name] = 0
			}
		}
		restarts = append(restarts, t.restarts()...)
		if len(t.Done) > 0 && !t.RunAt.IsZero() {
			starts = append(starts, max(t.Done[0].begun().Sub(t.RunAt).Seconds(), 0))
		}
	}
	if len(restarts) == 0 {
		restarts = starts
	}
	cost := r.price(median(restarts))
	for name := range names {
		names[name] = cost
	}
	return names
}

// price is what some seconds are taken to cost, in the unit of epochs: joules as trials use on average.
func (r *Record) price(seconds float64) float64 {
	if r.unit() == InSeconds {
		return seconds
	}
	var watts []float64
	for i := range r.Trials {
		if t := &r.Trials[i]; t.Joules() > 0 && t.Seconds() > 0 {
			watts = append(watts, t.Joules()/t.Seconds())
		}
	}
	return seconds * median(watts)
}

// restarts are for how many seconds the trial did not train each time that it was started again with other parameters. One that paused as well waited for more
// than that.
func (t *Trial) restarts() []float64 {
	var all []float64
	for i := 1; i < len(t.Done); i++ {
		before, e := t.Done[i-1], t.Done[i]
		if before.Attempt != e.Attempt && !before.Paused && t.left(before.Attempt) {
			all = append(all, max(e.begun().Sub(before.At).Seconds(), 0))
		}
	}
	return all
}

// left says whether an attempt was asked to leave for parameters that take another start, at last.
func (t *Trial) left(attempt int) bool {
	left := false
	for _, a := range t.Applied {
		if a.Attempt != attempt || !t.wanted(a) {
			continue
		}
		left = t.awaitsStart(a)
	}
	return left
}

// awaitsStart says whether an attempt has yet to be started again for its setting.
func (t *Trial) awaitsStart(a train.Applied) bool {
	return slices.ContainsFunc(t.pending(a), func(name string) bool { return slices.Contains(a.Restarts, name) })
}

// begun is when the epoch began.
func (e Epoch) begun() time.Time { return e.At.Add(-time.Duration(e.Seconds * float64(time.Second))) }

// median is 0 of nothing.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
