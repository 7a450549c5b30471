// Package recur decides how a recurring job trains next time: its batch size, its greatest cost, and its power
// limit. The cost of a recurrence is a weighted sum of its energy and its time (You et al., NSDI'23, eq. 2):
// eta*energy + (1-eta)*MaxPowerWatts*time, in joules.
//
// It does not decide about placement. A decision is a function of the group's record alone, so the live planner and
// the simulator decide alike.
package recur

import (
	"fmt"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Group is the input of a policy: the choices of a recurring job, and every attempt so far.
type Group struct {
	// BatchSizes are the allowed batch sizes, ascending. Default is the one that the user submits.
	BatchSizes []int `json:"batch_sizes"`
	Default    int   `json:"default_batch_size"`
	// LimitsWatts are the power limits that may be chosen, ascending.
	LimitsWatts []float64 `json:"limits_watts"`
	// MaxPowerWatts is the highest power limit of all the job's devices together: the price of a second.
	MaxPowerWatts float64 `json:"max_power_watts"`
	// Eta weighs energy against time: 0 is time alone, 1 energy alone.
	Eta float64 `json:"eta"`
	// Seed is the start of the random draws of policies.
	Seed uint64 `json:"seed,omitempty"`
	// Running is the number of attempts under way.
	Running int `json:"running,omitempty"`
	// Attempts have ended, in the order of their ends. A recurrence is an attempt that reached its target, together
	// with the attempts before it that did not.
	Attempts []contract.GroupAttempt `json:"attempts,omitempty"`
}

// Check reports what is wrong with the choices.
func (g *Group) Check() error {
	switch {
	case len(g.BatchSizes) == 0 || !slices.IsSorted(g.BatchSizes) || g.BatchSizes[0] <= 0:
		return fmt.Errorf("batch sizes %v: want positive numbers in ascending order", g.BatchSizes)
	case !slices.Contains(g.BatchSizes, g.Default):
		return fmt.Errorf("default batch size %d: want one of %v", g.Default, g.BatchSizes)
	case len(g.LimitsWatts) == 0 || !slices.IsSorted(g.LimitsWatts) || !(g.LimitsWatts[0] > 0):
		return fmt.Errorf("power limits %v: want positive numbers in ascending order", g.LimitsWatts)
	case !(g.MaxPowerWatts > 0):
		return fmt.Errorf("highest power %g: want more than 0", g.MaxPowerWatts)
	case !(g.Eta >= 0 && g.Eta <= 1):
		return fmt.Errorf("eta %g: want 0 (time) to 1 (energy)", g.Eta)
	}
	return nil
}

// Cost returns the cost of an amount of energy and time, in joules.
func (g *Group) Cost(joules, seconds float64) float64 {
	return Cost(g.Eta, g.MaxPowerWatts, joules, seconds)
}

// Cost returns eta*energy + (1-eta)*maxPower*time, in joules.
func Cost(eta, maxPowerWatts, joules, seconds float64) float64 {
	return eta*joules + (1-eta)*maxPowerWatts*seconds
}

// cost is the cost of an attempt.
func (g *Group) cost(a contract.GroupAttempt) float64 { return g.Cost(a.EnergyJoules, a.Seconds) }

// Recurrences counts the recurrences that have ended.
func (g *Group) Recurrences() int {
	n := 0
	for _, a := range g.Attempts {
		if a.Reached {
			n++
		}
	}
	return n
}

// epochs returns the mean number of epochs to the target with the default, 0 if it is not known.
func (g *Group) epochs() float64 {
	sum, n := 0, 0
	for _, a := range g.Attempts {
		if a.Reached && a.BatchSize == g.Default && a.Epochs > 0 {
			sum, n = sum+a.Epochs, n+1
		}
	}
	return float64(sum) / float64(max(n, 1))
}

// cheapest returns the least cost of a whole recurrence, failed attempts included. It is infinite before the first
// recurrence has ended.
func (g *Group) cheapest() float64 {
	least, sum := math.Inf(1), 0.0
	for _, a := range g.Attempts {
		sum += g.cost(a)
		if a.Reached {
			least, sum = min(least, sum), 0
		}
	}
	return least
}

// MaxCost returns the cost at which the next attempt stops, a multiple of the cheapest recurrence's (beta of NSDI'23).
// It is 0 without a recurrence to compare it with.
func (g *Group) MaxCost(stopRatio float64) float64 {
	if least := g.cheapest(); !math.IsInf(least, 1) {
		return stopRatio * least
	}
	return 0
}

// Policy decides on the next attempt of a group. Next is pure: the same group gives the same choice.
type Policy interface {
	Name() string
	Next(g *Group) contract.GroupChoice
}
