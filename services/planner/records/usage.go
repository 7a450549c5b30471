package records

import (
	"iter"
	"math"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Usage is the device time that tenants have used. It counts half after each half-life.
type Usage struct {
	contract.Usage
	HalfLife time.Duration
}

// Held says that a job of a tenant held devices for a time.
type Held struct {
	Tenant   string
	Devices  float64
	From, To time.Time
}

// least is the number of device-seconds below which nothing is left of a usage.
const least = 1

// Advance brings the usage to a later time. It counts only the part of what was held that lies between its time and
// that, so what comes again counts once.
func (u *Usage) Advance(to time.Time, all iter.Seq[Held]) {
	if !to.After(u.At) {
		return
	}
	kept := map[string]float64{}
	for tenant, seconds := range u.DeviceSeconds {
		kept[tenant] = seconds * u.left(to.Sub(u.At))
	}
	for h := range all {
		from, until := h.From, h.To
		if from.Before(u.At) {
			from = u.At
		}
		if until.After(to) {
			until = to
		}
		if until.After(from) { // the integral of 2^-t/h over that time
			kept[h.Tenant] += h.Devices * u.HalfLife.Seconds() / math.Ln2 * (u.left(to.Sub(until)) - u.left(to.Sub(from)))
		}
	}
	u.At, u.DeviceSeconds = to, map[string]float64{}
	for tenant, seconds := range kept {
		if seconds >= least {
			u.DeviceSeconds[tenant] = seconds
		}
	}
}

// left is the part that counts after a time.
func (u *Usage) left(after time.Duration) float64 {
	return math.Exp2(-after.Seconds() / u.HalfLife.Seconds())
}
