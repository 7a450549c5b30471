// Package recur decides how a job that comes again and again trains next time: with which batch size, up to which cost, and at which power limit. What a
// recurrence costs is a weighted sum of its energy and its time (You et al., NSDI'23, eq. 2): eta*energy + (1-eta)*MaxPowerWatts*time, in joules.
//
// It decides nothing about places or devices. A decision is a function of the group's record alone, so the live planner and the simulator decide alike.
package recur

import (
	"fmt"
	"math"
	"slices"
)

// Group is the record of a job that recurs: what may be chosen, and every attempt so far. It is all that a policy knows.
type Group struct {
	// BatchSizes are those allowed, ascending, and Default is the one of them that the user would take.
	BatchSizes []int `json:"batch_sizes"`
	Default    int   `json:"default_batch_size"`
	// LimitsWatts are the power limits that may be chosen, ascending.
	LimitsWatts []float64 `json:"limits_watts"`
	// MaxPowerWatts is the highest power limit of all the job's devices together: the price of a second.
	MaxPowerWatts float64 `json:"max_power_watts"`
	// Eta weighs energy against time: 0 is time alone, 1 energy alone.
	Eta float64 `json:"eta"`
	// Seed is where policies that draw draw from.
	Seed uint64 `json:"seed,omitempty"`
	// Running is how many attempts are under way, whose ends are not known yet.
	Running int `json:"running,omitempty"`
	// Attempts have ended, in the order of their ends. A recurrence is one attempt that reached its target, with those before it that did not.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Attempt is one run of the job that has ended.
type Attempt struct {
	BatchSize    int     `json:"batch_size"`
	LimitWatts   float64 `json:"limit_watts"`
	EnergyJoules float64 `json:"energy_joules"`
	Seconds      float64 `json:"seconds"`
	// Epochs is how many it trained, where that is known.
	Epochs int `json:"epochs,omitempty"`
	// Reached says whether the job came to its target. It may have given up, or have been stopped when it cost too much.
	Reached bool `json:"reached"`
}

// Choice is how the next attempt shall run.
type Choice struct {
	BatchSize int `json:"batch_size"`
	// LimitWatts is the power limit; 0 is the one that ChooseLimit takes for this batch size, profiled when it is first used.
	LimitWatts float64 `json:"limit_watts,omitempty"`
	// MaxCost is the cost before whose crossing the attempt shall stop at an epoch's end, in joules (0: none).
	MaxCost float64 `json:"max_cost_joules,omitempty"`
	// Number orders the jobs under way by when they began; the record gives it.
	Number int `json:"number,omitempty"`
}

// Check says what is wrong with what may be chosen.
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

// highest is the highest power limit, where a device is fastest.
func (g *Group) highest() float64 { return g.LimitsWatts[len(g.LimitsWatts)-1] }

// Cost is what an amount of energy and time costs, in joules.
func (g *Group) Cost(joules, seconds float64) float64 {
	return Cost(g.Eta, g.MaxPowerWatts, joules, seconds)
}

// Cost is eta*energy + (1-eta)*maxPower*time, in joules.
func Cost(eta, maxPowerWatts, joules, seconds float64) float64 {
	return eta*joules + (1-eta)*maxPowerWatts*seconds
}

// cost is what an attempt cost.
func (g *Group) cost(a Attempt) float64 { return g.Cost(a.EnergyJoules, a.Seconds) }

// Recurrences is how many recurrences have ended.
func (g *Group) Recurrences() int {
	n := 0
	for _, a := range g.Attempts {
		if a.Reached {
			n++
		}
	}
	return n
}

// cheapest is the least that a whole recurrence has cost, failed attempts included, and infinite before the first one has ended.
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

// stopRatio is how much more than the cheapest recurrence an attempt may cost before it is stopped (beta of NSDI'23).
const stopRatio = 2

// maxCost is where the next attempt stops; 0 while there is nothing to compare it with.
func (g *Group) maxCost() float64 {
	if least := g.cheapest(); !math.IsInf(least, 1) {
		return stopRatio * least
	}
	return 0
}
