package recur

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Profile finds the power limit of a running job: it measures one epoch at each limit, from the highest down.
type Profile contract.PowerProfile

// settling is how long after a limit was requested an epoch must begin to count: the agent sets the limit within a
// second, and the device follows at once.
const settling = 3 * time.Second

// Follow turns to an attempt; it returns false if the profile follows it already. Measurements hold as long as the
// attempt has the same number of devices. Limits are ascending.
func (p *Profile) Follow(a train.Attempt, limits []float64, now time.Time) bool {
	if p.Attempt == a.Number && p.Job == a.Job {
		return false
	}
	if devices := len(train.AllDevices(a.Places())); devices != p.Devices {
		p.Devices, p.Windows, p.Settled = devices, nil, false
	}
	p.Job, p.Attempt, p.Since = a.Job, a.Number, now
	if !p.Settled {
		p.Watts, _ = p.untried(limits)
	}
	return true
}

// Learn takes the first whole epoch at the present limit and turns to the next limit, or after the last one to the
// limit of least cost. It returns false if no such epoch has ended yet.
func (p *Profile) Learn(epochs []train.EpochEnergy, limits []float64, eta float64, now time.Time) bool {
	if p.Settled || len(limits) == 0 {
		return false
	}
	for i := 1; i < len(epochs); i++ {
		before, e := epochs[i-1], epochs[i]
		whole := before.Attempt == p.Attempt && e.Attempt == p.Attempt && e.EpochsDone == before.EpochsDone+1
		if !whole || before.At.Before(p.Since.Add(settling)) || !e.At.After(before.At) {
			continue
		}
		p.Windows = append(p.Windows, contract.PowerWindow{LimitWatts: p.Watts, EnergyJoules: (e.Energy - before.Energy).Joules(), Seconds: e.At.Sub(before.At).Seconds()})
		var more bool
		if p.Watts, more = p.untried(limits); !more {
			choice, _ := ChooseLimit(p.Windows, eta, limits[len(limits)-1]*float64(p.Devices))
			p.Watts, p.Settled = choice.LimitWatts, true
		}
		p.Since = now
		return true
	}
	return false
}

// GiveUp settles on no limit: the requested limit was not in force, so nothing can be learned from it.
func (p *Profile) GiveUp(now time.Time) {
	p.Watts, p.Windows, p.Settled, p.Since = 0, nil, true, now
}

// untried returns the highest limit without a window.
func (p *Profile) untried(limits []float64) (float64, bool) {
	for _, watts := range slices.Backward(limits) {
		if !slices.ContainsFunc(p.Windows, func(w contract.PowerWindow) bool { return w.LimitWatts == watts }) {
			return watts, true
		}
	}
	return 0, false
}
