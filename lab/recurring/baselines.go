package recurring

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// Policies returns all policies, the simplest first.
func Policies() []recur.Policy {
	return []recur.Policy{Default{}, Grid{}, Zeus{}, recur.Switchyard{Prior: recur.StandardPrior()}}
}

// Default takes what the user submits: the default batch size at the highest power limit.
type Default struct{}

// Name is "default".
func (Default) Name() string { return "default" }

// Next is always the same.
func (Default) Next(g *recur.Group) contract.GroupChoice {
	return contract.GroupChoice{BatchSize: g.Default, LimitWatts: highest(g)}
}

// Grid tries every batch size with every power limit once, then stays with the cheapest. A batch size that failed
// is not tried with other limits.
type Grid struct{}

// Name is "grid".
func (Grid) Name() string { return "grid" }

// Next goes through batch sizes and limits from the highest limit down.
func (Grid) Next(g *recur.Group) contract.GroupChoice {
	type knobs struct {
		batch int
		limit float64
	}
	tried, failed := map[knobs]bool{}, map[int]bool{}
	best, least := contract.GroupChoice{BatchSize: g.Default, LimitWatts: highest(g)}, -1.0
	for _, a := range g.Attempts {
		if !slices.Contains(g.BatchSizes, a.BatchSize) || !slices.Contains(g.LimitsWatts, a.LimitWatts) {
			continue // the user allows it no more
		}
		tried[knobs{a.BatchSize, a.LimitWatts}] = true
		if !a.Reached {
			failed[a.BatchSize] = true
		} else if cost := costOf(g, a); least < 0 || cost < least {
			best, least = contract.GroupChoice{BatchSize: a.BatchSize, LimitWatts: a.LimitWatts}, cost
		}
	}
	for _, batch := range g.BatchSizes {
		for _, limit := range slices.Backward(g.LimitsWatts) {
			if !failed[batch] && !tried[knobs{batch, limit}] {
				return contract.GroupChoice{BatchSize: batch, LimitWatts: limit}
			}
		}
	}
	return best
}

// highest is the highest power limit, where a device is fastest.
func highest(g *recur.Group) float64 { return g.LimitsWatts[len(g.LimitsWatts)-1] }

// costOf is the cost of an attempt.
func costOf(g *recur.Group, a contract.GroupAttempt) float64 {
	return g.Cost(a.EnergyJoules, a.Seconds)
}
