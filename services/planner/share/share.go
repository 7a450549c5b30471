// Package share decides beside which jobs a job starts that gets no device of its own, and whether jobs that share a device stay together. It weighs the
// progress of all of them as libs/curve predicts it. Who gets a device of its own, and memory in bytes, are the plan's.
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
	// optimism is how many standard deviations a prediction for two jobs is raised. What is never tried is never learnt, and a bad try ends when it has been
	// measured. For more than two, which teach nothing of pairs, it is lowered by as much.
	optimism = 0.3
	// rounding is what gains may differ by without meaning: of equals the first is chosen, on every machine.
	rounding = 1e-9
	// surelyFit is the likelihood of fitting from which jobs share whose memory nobody knows.
	surelyFit = 0.85
)

// Tenant is a job on a device, or one that looks for a device.
type Tenant struct {
	Kind curve.Kind
	// Weight is what its progress counts, by its priority; 1 is usual.
	Weight float64
	// Memory is the part of the device that it declares or was measured to need, 0 to 1; 0 where nobody knows.
	Memory float64
}

// Choose gives the one of several devices, each with the tenants that it has, on which a newcomer adds most to the progress of all: its own less what it
// takes from the tenants. It is -1 where that is too little everywhere: then the job waits for a device of its own.
func Choose(m *curve.Interference, newcomer Tenant, devices [][]Tenant) int {
	best, most := -1, worthwhile*newcomer.Weight
	for i, tenants := range devices {
		if !fits(m, newcomer, tenants) {
			continue
		}
		before, _ := progress(m, tenants)
		gain, deviation := progress(m, append(slices.Clone(tenants), newcomer))
		if len(tenants) > 1 {
			deviation = -deviation
		}
		if gain += optimism*deviation - before; gain > most+rounding {
			best, most = i, gain
		}
	}
	return best
}

// Stay says whether tenants stay together whose rates on the device were measured: together they must do no less than the weightiest of them would alone.
func Stay(tenants []Tenant, rates []float64) bool {
	together, alone := 0.0, 0.0
	for i, t := range tenants {
		together += t.Weight * rates[i]
		alone = max(alone, t.Weight)
	}
	return together >= alone
}

// fits says whether a newcomer's memory fits beside tenants: by what all of them declare, or by what was learnt of each two where one does not.
func fits(m *curve.Interference, newcomer Tenant, tenants []Tenant) bool {
	sum, known := newcomer.Memory, newcomer.Memory > 0
	for _, t := range tenants {
		sum, known = sum+t.Memory, known && t.Memory > 0
	}
	return sum <= 1 && (known || !slices.ContainsFunc(tenants, func(t Tenant) bool { return m.Fits(newcomer.Kind, t.Kind) < surelyFit }))
}

// progress is what tenants do together, in progress of a job of weight 1 alone.
func progress(m *curve.Interference, tenants []Tenant) (sum, deviation float64) {
	for i, t := range tenants {
		var others []curve.Kind
		for k, other := range tenants {
			if k != i {
				others = append(others, other.Kind)
			}
		}
		rate, d := m.RateAmong(t.Kind, others)
		sum, deviation = sum+t.Weight*rate, math.Hypot(deviation, t.Weight*d)
	}
	return sum, deviation
}
