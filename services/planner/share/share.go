// Package share values colocation: it decides beside which jobs a job starts that gets no device of its own, and
// whether jobs that share devices stay together. It weighs the progress of all of them, as libs/curve predicts it.
// A job on several devices waits in each step for the slowest of them, so its rate is the least of its rates on
// each.
//
// It does not decide which jobs get a device of their own, and does not count memory in bytes: the plan does.
package share

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

const (
	// worthwhile is the least gain for which a job starts beside others, as a part of its progress alone. Jobs are
	// separated only if they do less together than one alone; the distance between the two bounds keeps jobs from
	// moving to and fro.
	worthwhile = 0.1
	// leastOfFairShare is the least part of its fair share of a device at which a job runs beside others. The fair
	// share is a half between two jobs and a third between three. A job below it is slowed too much, whatever the
	// others gain. Values from 0.4 to 0.6 cost little on measured pairs (docs/benchmarks.md).
	leastOfFairShare = 0.5
	// optimism is the number of standard deviations by which a prediction for two jobs is raised: a pair that is
	// never tried is never measured, and a bad try ends once it is measured. A prediction for more than two jobs
	// teaches nothing about pairs and is lowered by as much.
	optimism = 0.3
	// rounding is the difference of gains that means nothing: among equals the first is chosen, on every machine.
	rounding = 1e-9
	// surelyFit is the probability of fitting from which jobs share a device if their memory is unknown.
	surelyFit = 0.85
)

// Tenant is a job on one or several devices, or a job that needs some.
type Tenant struct {
	Kind curve.Kind
	// Weight is how much its progress counts, by its priority and the number of its devices; 1 is usual.
	Weight float64
	// Memory is the part of each device that it declares or was measured to need, 0 to 1; 0 if unknown.
	Memory float64
	// On lists its devices, by numbers that mean the same for all tenants. If empty, all tenants are on the same
	// device.
	On []int
}

// Place is a device, or several devices of one type, on which a newcomer may start.
type Place struct {
	// Model is the interference on devices of this type.
	Model *curve.Interference
	// Newcomer is the job on this place. Tenants are the jobs it would share devices with, and the jobs whose
	// progress depends on theirs.
	Newcomer Tenant
	Tenants  []Tenant
}

// Choose returns the index of the place where a newcomer adds most to the progress of all: its own progress less
// what it takes from the tenants. It returns -1 if the gain is too small everywhere, or some job would be slowed
// too much. Then the newcomer waits for a device of its own.
func Choose(places []Place) int {
	best, most := -1, math.Inf(-1)
	for i, p := range places {
		all := append(slices.Clone(p.Tenants), p.Newcomer)
		if !p.fits() || Parted(p.Model, all) {
			continue
		}
		before, _ := progress(p.Model, p.Tenants)
		gain, deviation := progress(p.Model, all)
		hope := optimism
		if len(p.Tenants) > 1 {
			hope = -optimism
		}
		gain += hope*deviation - before
		if gain > worthwhile*p.Newcomer.Weight+rounding && gain > most+rounding && !TooSlow(all, predicted(p.Model, all, hope)) {
			best, most = i, gain
		}
	}
	return best
}

// Apart returns how much more all tenants would do if tenant i had other devices for itself. The unit is the
// progress of a job of weight 1 alone.
func Apart(m *curve.Interference, tenants []Tenant, i int) float64 {
	together, _ := progress(m, tenants)
	others, _ := progress(m, slices.Delete(slices.Clone(tenants), i, i+1))
	return others + tenants[i].Weight - together
}

// TooSlow reports whether any tenant is slowed too much, whatever the others gain: it runs at less than half of its
// fair share of its most crowded device.
func TooSlow(tenants []Tenant, rates []float64) bool {
	for i := range tenants {
		if slowed(tenants, i, rates[i]) {
			return true
		}
	}
	return false
}

// slowed is TooSlow for one tenant.
func slowed(tenants []Tenant, i int, rate float64) bool {
	most := 0
	for _, device := range tenants[i].devices() {
		most = max(most, 1+len(besides(tenants, i, device)))
	}
	return rate < leastOfFairShare/float64(most)
}

// Stay reports whether tenants with measured rates stay together: none is slowed too much, and together they do no
// less than the tenant with the most weight would do alone.
func Stay(tenants []Tenant, rates []float64) bool {
	return doEnough(tenants, rates) && !TooSlow(tenants, rates)
}

// doEnough is the second half of Stay.
func doEnough(tenants []Tenant, rates []float64) bool {
	together, alone := 0.0, 0.0
	for i, t := range tenants {
		together += t.Weight * rates[i]
		alone = max(alone, t.Weight)
	}
	return together >= alone
}

// Parted reports whether tenants are known not to stay together. A device counts if any tenant was measured there
// beside exactly the others.
func Parted(m *curve.Interference, tenants []Tenant) bool {
	_, rates := paces(m, tenants)
	return !Stay(tenants, rates)
}

// Brakes returns the devices that tenants must be separated on; a job has to leave one of them. First come the
// devices on which a tenant that is slowed too much is slowest. If all tenants together do too little, the slowest
// devices of the others follow, in the order of the tenants.
func Brakes(m *curve.Interference, tenants []Tenant) []int {
	devices, rates := paces(m, tenants)
	var brakes, others []int
	for i, device := range devices {
		if slowed(tenants, i, rates[i]) {
			brakes = append(brakes, device)
		} else {
			others = append(others, device)
		}
	}
	if !doEnough(tenants, rates) {
		brakes = append(brakes, others...)
	}
	return brakes
}

// paces returns for each tenant the device that sets its pace, and its rate there. A device without a measurement
// slows no tenant.
func paces(m *curve.Interference, tenants []Tenant) (devices []int, rates []float64) {
	devices, rates = make([]int, len(tenants)), make([]float64, len(tenants))
	for i, t := range tenants {
		rates[i] = math.Inf(1)
		for _, device := range t.devices() {
			rate := 1.0
			if met(m, tenants, device) {
				rate, _ = m.RateAmong(t.Kind, besides(tenants, i, device))
			}
			if rate < rates[i] {
				devices[i], rates[i] = device, rate
			}
		}
	}
	return devices, rates
}

// met reports whether any tenant of a device was measured beside exactly the others.
func met(m *curve.Interference, tenants []Tenant, device int) bool {
	for i, t := range tenants {
		if t.on(device) && m.Measurements(t.Kind, besides(tenants, i, device)) > 0 {
			return true
		}
	}
	return false
}

// fits reports whether the newcomer's memory fits beside the tenants. It adds up what they declare; if one declares
// nothing, the learned probability that each pair fits decides. A pair that did not fit is not tried again,
// whatever it declares.
func (p Place) fits() bool {
	for _, device := range p.Newcomer.devices() {
		sum, known := p.Newcomer.Memory, p.Newcomer.Memory > 0
		for _, t := range p.Tenants {
			if t.on(device) {
				sum, known = sum+t.Memory, known && t.Memory > 0
			}
		}
		needed := surelyFit
		if known {
			needed = math.SmallestNonzeroFloat64
		}
		tooMuch := func(t Tenant) bool { return t.on(device) && p.Model.Fits(p.Newcomer.Kind, t.Kind) < needed }
		if sum > 1+rounding || slices.ContainsFunc(p.Tenants, tooMuch) {
			return false
		}
	}
	return true
}

// Rates returns the predicted rate of each tenant, and how often it was measured beside exactly its co-runners on
// its slowest device.
func Rates(m *curve.Interference, tenants []Tenant) (rates []float64, measured []int) {
	for i, t := range tenants {
		device, rate, _ := slowest(m, tenants, i)
		rates, measured = append(rates, rate), append(measured, m.Measurements(t.Kind, besides(tenants, i, device)))
	}
	return rates, measured
}

// Slowest returns the device on which tenant i is predicted to be slowest, the first among equals.
func Slowest(m *curve.Interference, tenants []Tenant, i int) int {
	device, _, _ := slowest(m, tenants, i)
	return device
}

// slowest returns the device that sets the pace of tenant i, with its predicted rate there and the standard deviation.
func slowest(m *curve.Interference, tenants []Tenant, i int) (device int, rate, deviation float64) {
	rate = math.Inf(1)
	for _, d := range tenants[i].devices() {
		if r, dev := m.RateAmong(tenants[i].Kind, besides(tenants, i, d)); r < rate {
			device, rate, deviation = d, r, dev
		}
	}
	return device, rate, deviation
}

// devices lists the devices of the tenant.
func (t Tenant) devices() []int {
	if len(t.On) == 0 {
		return []int{0}
	}
	return t.On
}

func (t Tenant) on(device int) bool { return slices.Contains(t.devices(), device) }

// predicted returns the rates of tenants, each raised by a number of its standard deviations.
func predicted(m *curve.Interference, tenants []Tenant, deviations float64) []float64 {
	rates := make([]float64, len(tenants))
	for i := range tenants {
		_, rate, deviation := slowest(m, tenants, i)
		rates[i] = rate + deviations*deviation
	}
	return rates
}

// besides lists the kinds of all tenants of a device except tenant i.
func besides(tenants []Tenant, i, device int) []curve.Kind {
	var others []curve.Kind
	for k, t := range tenants {
		if k != i && t.on(device) {
			others = append(others, t.Kind)
		}
	}
	return others
}

// progress returns what tenants do together and its standard deviation, in units of the progress of a job of weight
// 1 alone.
func progress(m *curve.Interference, tenants []Tenant) (sum, deviation float64) {
	for i, t := range tenants {
		_, rate, d := slowest(m, tenants, i)
		sum, deviation = sum+t.Weight*rate, math.Hypot(deviation, t.Weight*d)
	}
	return sum, deviation
}
