package recur

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Switchyard estimates for every batch size what one more run of it would teach. It takes the one whose lesson is
// worth most for the recurrences to come, less its extra cost over the best known one: the knowledge gradient of
// Ryzhov, Powell and Frazier (Operations Research 60(1), 2012) on a Gaussian belief about the logarithm of costs,
// in which neighbours inform each other. A batch size that failed more often than not is not tried again, nor are
// those beyond it. docs/energy.md derives it.
type Switchyard struct{ Prior Prior }

// Name is "switchyard".
func (Switchyard) Name() string { return "switchyard" }

// Next weighs all batch sizes next to those that ran.
func (s Switchyard) Next(g *Group) contract.GroupChoice {
	c := contract.GroupChoice{MaxCost: g.MaxCost(s.Prior.StopRatio)}
	h := newHistory(g, s.Prior.StopRatio)
	if h.best < 0 {
		c.BatchSize = outward(g.BatchSizes, g.Default, len(g.Attempts))
		return c
	}
	b := newBelief(s.Prior, g.BatchSizes, g.Default, h)
	best := b.bestKnown()
	c.BatchSize = g.BatchSizes[best]
	if g.Running > 0 {
		return c // what is under way will teach first
	}
	// The recurrences to come are as many as there were, as one expects of a process of unknown length, and not too
	// few.
	horizon := max(float64(g.Recurrences()), s.Prior.MinHorizon)
	least, most := b.price(best, best), horizon*b.gain(best)
	for i, size := range g.BatchSizes {
		if i == best || !b.open(i) {
			continue
		}
		if worth := horizon*b.gain(i) - (b.price(i, best) - least); worth > most+1e-9 {
			c.BatchSize, most = size, worth
		}
	}
	return c
}

// outward returns batch sizes by their distance from a start, the smaller first: if not even the default reaches
// the target, the others are tried in turn.
func outward(sizes []int, start, turn int) int {
	at := slices.Index(sizes, start)
	order := []int{start}
	for d := 1; d < len(sizes); d++ {
		if at-d >= 0 {
			order = append(order, sizes[at-d])
		}
		if at+d < len(sizes) {
			order = append(order, sizes[at+d])
		}
	}
	return order[turn%len(order)]
}

// history holds what the attempts of a group show of each batch size.
type history struct {
	runs, mean, squares []float64 // their number, the mean log cost, the sum of squares around it
	reached, failed     []int
	best                int // the batch size of the cheapest run, -1 while none has reached its target
	// epochs is the mean number of epochs to the target with the default, 0 if unknown.
	epochs float64
}

func newHistory(g *Group, stopRatio float64) history {
	n := len(g.BatchSizes)
	h := history{make([]float64, n), make([]float64, n), make([]float64, n), make([]int, n), make([]int, n), -1, g.epochs()}
	cheapest := math.Inf(1)
	for _, a := range g.Attempts {
		i := slices.Index(g.BatchSizes, a.BatchSize)
		if cost := g.cost(a); i >= 0 && a.Reached && cost > 0 && cost < cheapest {
			cheapest, h.best = cost, i
		}
	}
	for _, a := range g.Attempts {
		i, cost := slices.Index(g.BatchSizes, a.BatchSize), g.cost(a)
		if i < 0 || a.Reached && !(cost > 0) {
			continue // the user allows it no more, or nothing was measured
		}
		if a.Reached {
			h.reached[i]++
		} else {
			// Without the stop it would have cost more, and another run had to follow.
			h.failed[i]++
			cost = max(cost, stopRatio*cheapest) + cheapest
		}
		h.runs[i]++
		off := math.Log(cost) - h.mean[i]
		h.mean[i] += off / h.runs[i]
		h.squares[i] += off * (math.Log(cost) - h.mean[i])
	}
	return h
}

// noise is the variance of one run, by the prior and by the runs of the same batch size.
func (h history) noise(p Prior) float64 {
	squares, runs := p.NoiseRuns*p.Noise*p.Noise, p.NoiseRuns
	for i, n := range h.runs {
		squares, runs = squares+h.squares[i], runs+max(n-1, 0)
	}
	return squares / runs
}
