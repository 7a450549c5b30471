package recur

import "slices"

// Policy decides on the next attempt of a group. Next is pure: the same group gives the same choice.
type Policy interface {
	Name() string
	Next(g *Group) Choice
}

// Policies are all of them, the simplest first.
func Policies() []Policy { return []Policy{Default{}, Grid{}, Zeus{}, Switchyard{StandardPrior()}} }

// Default takes what the user would: the default batch size at the highest power limit.
type Default struct{}

// Name is "default".
func (Default) Name() string { return "default" }

// Next is always the same.
func (Default) Next(g *Group) Choice {
	return Choice{BatchSize: g.Default, LimitWatts: g.highest()}
}

// Grid tries every batch size with every power limit once, then keeps to the cheapest. A batch size that has failed is not tried with other limits.
type Grid struct{}

// Name is "grid".
func (Grid) Name() string { return "grid" }

// Next goes through batch sizes and limits from the highest limit down.
func (Grid) Next(g *Group) Choice {
	type knobs struct {
		batch int
		limit float64
	}
	tried, failed := map[knobs]bool{}, map[int]bool{}
	best, least := Choice{BatchSize: g.Default, LimitWatts: g.highest()}, -1.0
	for _, a := range g.Attempts {
		if !slices.Contains(g.BatchSizes, a.BatchSize) || !slices.Contains(g.LimitsWatts, a.LimitWatts) {
			continue // the user allows it no more
		}
		tried[knobs{a.BatchSize, a.LimitWatts}] = true
		if !a.Reached {
			failed[a.BatchSize] = true
		} else if cost := g.cost(a); least < 0 || cost < least {
			best, least = Choice{BatchSize: a.BatchSize, LimitWatts: a.LimitWatts}, cost
		}
	}
	for _, batch := range g.BatchSizes {
		for _, limit := range slices.Backward(g.LimitsWatts) {
			if !failed[batch] && !tried[knobs{batch, limit}] {
				return Choice{BatchSize: batch, LimitWatts: limit}
			}
		}
	}
	return best
}
