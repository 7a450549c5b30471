package conduct

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// changes returns the costs of changing those parameters that need a restart of a trial, in the unit of its epochs.
// Before the first restart a change is assumed to last as long as the time from the start of a trial's processes to the
// start of its first epoch.
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
		restarts = append(restarts, restartSeconds(t)...)
		if len(t.Done) > 0 && !t.RunAt.IsZero() {
			starts = append(starts, max(begunAt(t.Done[0]).Sub(t.RunAt).Seconds(), 0))
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

// price returns the assumed cost of some seconds, in the unit of epochs: joules at the trials' mean power.
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

// restartSeconds returns the seconds without training of each restart with other parameters. A restart during a pause
// does not count: it waited for more.
func restartSeconds(t *contract.Trial) []float64 {
	var all []float64
	for i := 1; i < len(t.Done); i++ {
		before, e := t.Done[i-1], t.Done[i]
		if before.Attempt != e.Attempt && !before.Paused && leftFor(t, before.Attempt) {
			all = append(all, max(begunAt(e).Sub(before.At).Seconds(), 0))
		}
	}
	return all
}

// leftFor reports whether the last request to an attempt was to stop for parameters that need a restart.
func leftFor(t *contract.Trial, attempt int) bool {
	left := false
	for _, a := range t.Applied {
		if a.Attempt != attempt || !isWanted(t, a) {
			continue
		}
		left = awaitsStart(t, a)
	}
	return left
}

// awaitsStart reports whether an attempt has yet to be restarted for its setting.
func awaitsStart(t *contract.Trial, a train.Applied) bool {
	return slices.ContainsFunc(pendingNames(t, a), func(name string) bool { return slices.Contains(a.Restarts, name) })
}

// begunAt returns the start of the epoch.
func begunAt(e contract.TrialEpoch) time.Time {
	return e.At.Add(-time.Duration(e.Seconds * float64(time.Second)))
}

// median returns 0 for no values.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
