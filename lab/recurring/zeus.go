package recurring

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// Zeus is the published algorithm (You et al., "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN
// Training", NSDI'23, section 4). Two rounds of pruning walk from a start downwards, then upwards, and leave a
// direction at the first batch size that does not reach the target. The second round starts at the cheapest size of
// the first and stays with its survivors. Among the survivors of both it then draws by Thompson sampling: the mean
// cost of each is Gaussian, with the sample variance over the number of its observations.
type Zeus struct{}

// stopRatio is the multiple of the cheapest recurrence's cost at which an attempt is stopped, the published beta.
const stopRatio = 2

// Name is "zeus".
func (Zeus) Name() string { return "zeus" }

// Next repeats the walks on the record, and samples when they are over.
func (Zeus) Next(g *recur.Group) contract.GroupChoice {
	c := contract.GroupChoice{BatchSize: best(g), MaxCost: g.MaxCost(stopRatio)}
	if g.Running > 0 {
		return c // what is under way may be the next step of a walk
	}
	arms, start, rest := g.BatchSizes, g.Default, g.Attempts
	for range 2 {
		w := walk(g, arms, start, rest)
		if w.next != 0 {
			c.BatchSize = w.next
			return c
		}
		arms, start, rest = w.good, w.best, rest[w.steps:]
	}
	if len(arms) > 0 {
		c.BatchSize = sample(g, arms)
	}
	return c
}

// pruning is the state of a round of pruning.
type pruning struct {
	next  int   // the batch size to try next, 0 when the round is over
	good  []int // those that reached the target, ascending
	best  int   // the cheapest of them
	steps int   // how many attempts passed meanwhile
}

func walk(g *recur.Group, arms []int, start int, attempts []contract.GroupAttempt) pruning {
	at := slices.Index(arms, start)
	if at < 0 {
		return pruning{}
	}
	down := slices.Clone(arms[:at+1])
	slices.Reverse(down)
	w, least := pruning{}, math.Inf(1)
	for _, direction := range [][]int{down, arms[at+1:]} {
		for _, batch := range direction {
			// Attempts that started while another was under way are not steps of the walk.
			for w.steps < len(attempts) && attempts[w.steps].BatchSize != batch {
				w.steps++
			}
			if w.steps == len(attempts) {
				w.next = batch
				return w
			}
			a := attempts[w.steps]
			w.steps++
			if !a.Reached {
				break
			}
			w.good = append(w.good, batch)
			if cost := costOf(g, a); cost < least {
				least, w.best = cost, batch
			}
		}
	}
	slices.Sort(w.good)
	return w
}

// sample draws the mean cost of each arm from its posterior and takes the least.
func sample(g *recur.Group, arms []int) int {
	rng := rand.New(rand.NewPCG(g.Seed, uint64(len(g.Attempts))))
	choice, least := arms[0], math.Inf(1)
	for _, arm := range arms {
		n, mean, squares := 0.0, 0.0, 0.0
		for _, a := range g.Attempts {
			if a.BatchSize != arm {
				continue
			}
			n++
			off := costOf(g, a) - mean
			mean += off / n
			squares += off * (costOf(g, a) - mean)
		}
		if draw := mean + rng.NormFloat64()*math.Sqrt(squares)/n; draw < least {
			choice, least = arm, draw
		}
	}
	return choice
}

// best returns the batch size of the cheapest attempt that reached its target, or the default before there is one.
func best(g *recur.Group) int {
	choice, least := g.Default, math.Inf(1)
	for _, a := range g.Attempts {
		if cost := costOf(g, a); a.Reached && cost < least && slices.Contains(g.BatchSizes, a.BatchSize) {
			choice, least = a.BatchSize, cost
		}
	}
	return choice
}
