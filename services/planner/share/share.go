// Package share decides beside which jobs a job starts that gets no device of its own, and whether jobs that share devices stay together. It weighs the
// progress of all of them as libs/curve predicts it. A job on several devices waits in each step for the slowest of them: its rate is the least of those that
// it would have on each. Who gets a device of its own, and memory in bytes, are the plan's.
package share

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

const (
	// worthwhile is the least gain for which a job starts beside others, as a part of its progress alone. They part only when they do less together than one
	// alone: what is between the two keeps jobs from going to and fro.
	worthwhile = 0.1
	// leastOfFairShare is the least part of its fair share of a device, half of it between two and a third between three, at which a job runs beside others:
	// whatever the others gain, nobody crawls. From 0.4 to 0.6 it costs little on measured pairs (docs/benchmarks.md).
	leastOfFairShare = 0.5
	// optimism is how many standard deviations a prediction for two jobs is raised. What is never tried is never learnt, and a bad try ends when it has been
	// measured. For more than two, which teach nothing of pairs, it is lowered by as much.
	optimism = 0.3
	// rounding is what gains may differ by without meaning: of equals the first is chosen, on every machine.
	rounding = 1e-9
	// surelyFit is the likelihood of fitting from which jobs share whose memory nobody knows.
	surelyFit = 0.85
)

// Tenant is a job on one device or several, or one that looks for them.
type Tenant struct {
	Kind curve.Kind
	// Weight is what its progress counts, by its priority and the number of its devices; 1 is usual.
	Weight float64
	// Memory is the part of each device that it declares or was measured to need, 0 to 1; 0 where nobody knows.
	Memory float64
	// On are its devices, by numbers that mean the same for all tenants; left out, all have one and the same.
	On []int
}

// Place is a device on which a newcomer may start, or several of one type.
type Place struct {
	// Model is what is known of devices of its type.
	Model *curve.Interference
	// Newcomer is what the job would be there, Tenants are the jobs that it would be beside, and those whose progress depends on theirs.
	Newcomer Tenant
	Tenants  []Tenant
}

// Choose gives the place where a newcomer adds most to the progress of all: its own less what it takes from the tenants. It is -1 where that is too little
// everywhere, or somebody would crawl: then the job waits for a device of its own.
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
		if gain > worthwhile*p.Newcomer.Weight+rounding && gain > most+rounding && !Crawls(all, predicted(p.Model, all, hope)) {
			best, most = i, gain
		}
	}
	return best
}

// Apart is what all tenants would do more if tenant i had other devices for itself, in progress of a job of weight 1 alone.
func Apart(m *curve.Interference, tenants []Tenant, i int) float64 {
	together, _ := progress(m, tenants)
	others, _ := progress(m, slices.Delete(slices.Clone(tenants), i, i+1))
	return others + tenants[i].Weight - together
}

// Crawls says whether any of the tenants is so slow that it is not beside the others, whatever these gain: at less than half of its part of the device that it
// shares with the most.
func Crawls(tenants []Tenant, rates []float64) bool {
	for i := range tenants {
		if crawls(tenants, i, rates[i]) {
			return true
		}
	}
	return false
}

func crawls(tenants []Tenant, i int, rate float64) bool {
	most := 0
	for _, device := range tenants[i].devices() {
		most = max(most, 1+len(besides(tenants, i, device)))
	}
	return rate < leastOfFairShare/float64(most)
}

// Stay says whether tenants stay together whose rates were measured: none of them crawls, and together they do no less than the weightiest of them would alone.
func Stay(tenants []Tenant, rates []float64) bool {
	return doEnough(tenants, rates) && !Crawls(tenants, rates)
}

func doEnough(tenants []Tenant, rates []float64) bool {
	together, alone := 0.0, 0.0
	for i, t := range tenants {
		together += t.Weight * rates[i]
		alone = max(alone, t.Weight)
	}
	return together >= alone
}

// Parted says whether it is known of tenants that they do not stay together. A device counts on which any of them was measured beside just the others there.
func Parted(m *curve.Interference, tenants []Tenant) bool {
	_, rates := paces(m, tenants)
	return !Stay(tenants, rates)
}

// Brakes are the devices of one of which somebody has to leave where tenants part: those on which it is known that one who crawls is slowest, and where all
// do too little together, those of the others, by the tenants' order.
func Brakes(m *curve.Interference, tenants []Tenant) []int {
	devices, rates := paces(m, tenants)
	var brakes, others []int
	for i, device := range devices {
		if crawls(tenants, i, rates[i]) {
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

// paces are the devices that set the tenants' paces, with their rates there: on one of which nothing was measured nobody is held up.
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

// met says whether any tenant of a device was measured beside just the others.
func met(m *curve.Interference, tenants []Tenant, device int) bool {
	for i, t := range tenants {
		if t.on(device) && m.Measurements(t.Kind, besides(tenants, i, device)) > 0 {
			return true
		}
	}
	return false
}

// fits says whether a newcomer's memory fits beside tenants: by what all of them declare, or by what was learnt of each two where one does not. Two that did
// not fit are not tried again, whatever they declare.
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

// Rates are what tenants are predicted to run at, and how often each of them was measured beside just those that are with it where it is slowest.
func Rates(m *curve.Interference, tenants []Tenant) (rates []float64, measured []int) {
	for i, t := range tenants {
		device, rate, _ := slowest(m, tenants, i)
		rates, measured = append(rates, rate), append(measured, m.Measurements(t.Kind, besides(tenants, i, device)))
	}
	return rates, measured
}

// Slowest is the device on which tenant i is predicted to be slowest, the first of equals.
func Slowest(m *curve.Interference, tenants []Tenant, i int) int {
	device, _, _ := slowest(m, tenants, i)
	return device
}

// slowest is the device of tenant i that sets its pace, with its rate there.
func slowest(m *curve.Interference, tenants []Tenant, i int) (device int, rate, deviation float64) {
	rate = math.Inf(1)
	for _, d := range tenants[i].devices() {
		if r, dev := m.RateAmong(tenants[i].Kind, besides(tenants, i, d)); r < rate {
			device, rate, deviation = d, r, dev
		}
	}
	return device, rate, deviation
}

// devices are those that the tenant has.
func (t Tenant) devices() []int {
	if len(t.On) == 0 {
		return []int{0}
	}
	return t.On
}

func (t Tenant) on(device int) bool { return slices.Contains(t.devices(), device) }

// predicted are the rates of tenants, each raised by so many of its standard deviations.
func predicted(m *curve.Interference, tenants []Tenant, deviations float64) []float64 {
	rates := make([]float64, len(tenants))
	for i := range tenants {
		_, rate, deviation := slowest(m, tenants, i)
		rates[i] = rate + deviations*deviation
	}
	return rates
}

// besides are the kinds of all tenants of a device but one.
func besides(tenants []Tenant, i, device int) []curve.Kind {
	var others []curve.Kind
	for k, t := range tenants {
		if k != i && t.on(device) {
			others = append(others, t.Kind)
		}
	}
	return others
}

// progress is what tenants do together, in progress of a job of weight 1 alone.
func progress(m *curve.Interference, tenants []Tenant) (sum, deviation float64) {
	for i, t := range tenants {
		_, rate, d := slowest(m, tenants, i)
		sum, deviation = sum+t.Weight*rate, math.Hypot(deviation, t.Weight*d)
	}
	return sum, deviation
}
