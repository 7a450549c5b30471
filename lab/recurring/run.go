// Package recurring replays recurring jobs on measured trainings, once for each policy of package recur: what would
// their energy, time and cost have been? The traces are those published with Zeus (NSDI'23). The package decides
// nothing itself.
package recurring

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// expense is an amount of energy and time.
type expense struct{ joules, seconds float64 }

func (e *expense) add(o expense) { e.joules, e.seconds = e.joules+o.joules, e.seconds+o.seconds }

// Recurrences is the number of recurrences: two for each batch size and power limit.
func (t *Training) Recurrences() int { return 2 * len(t.Batches) * len(t.limits()) }

// limits are the power limits at which any batch size was measured, ascending.
func (t *Training) limits() []float64 {
	var all []float64
	for _, b := range t.Batches {
		for _, e := range b.Limits {
			all = append(all, e.LimitWatts)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// group returns what a policy knows before the first recurrence.
func (t *Training) group(eta float64, seed uint64) *recur.Group {
	g := &recur.Group{Default: t.Default, LimitsWatts: t.limits(), MaxPowerWatts: t.MaxPowerWatts, Eta: eta, Seed: seed}
	for _, b := range t.Batches {
		g.BatchSizes = append(g.BatchSizes, b.Size)
	}
	return g
}

// mostAttempts bounds the attempts of one recurrence: a policy that needs more does not converge.
const mostAttempts = 1000

// world is one replay of a training under a policy.
type world struct {
	training *Training
	group    *recur.Group
	policy   recur.Policy
	draws    map[int]*rand.Rand
	profiled map[int]contract.PowerWindow
}

// replay returns what each recurrence spent, failed attempts included.
func replay(t *Training, p recur.Policy, eta float64, seed uint64) ([]expense, error) {
	w := &world{t, t.group(eta, seed), p, map[int]*rand.Rand{}, map[int]contract.PowerWindow{}}
	if err := w.group.Check(); err != nil {
		return nil, fmt.Errorf("replay %s on %s: %w", t.Dataset, t.GPU, err)
	}
	spent := make([]expense, t.Recurrences())
	for i := range spent {
		for tries := 0; ; tries++ {
			if tries == mostAttempts {
				return nil, fmt.Errorf("replay %s on %s: policy %s has not reached the target in %d attempts", t.Dataset, t.GPU, p.Name(), tries)
			}
			a := w.attempt(p.Next(w.group))
			w.group.Attempts = append(w.group.Attempts, a)
			spent[i].add(expense{a.EnergyJoules, a.Seconds})
			if a.Reached {
				break
			}
		}
	}
	return spent, nil
}

// attempt runs a training once, on the epochs of one of its measured runs.
func (w *world) attempt(c contract.GroupChoice) contract.GroupAttempt {
	batch := w.training.batch(c.BatchSize)
	epochs := w.draw(batch)
	e, fresh := w.limit(batch, c.LimitWatts)
	last := float64(w.training.MaxEpochs)
	if c.MaxCost > 0 {
		last = min(last, math.Floor(c.MaxCost/w.group.Cost(e.EnergyJoules, e.Seconds)))
	}
	n := min(epochs, last)
	a := contract.GroupAttempt{
		BatchSize: c.BatchSize, LimitWatts: e.LimitWatts, EnergyJoules: n * e.EnergyJoules, Seconds: n * e.Seconds, Epochs: int(n), Reached: epochs <= last,
	}
	if fresh && n >= 1 {
		// The first epoch is spent on all limits, an equal part on each.
		mean := batch.mean()
		a.EnergyJoules, a.Seconds = (n-1)*e.EnergyJoules+mean.joules, (n-1)*e.Seconds+mean.seconds
	}
	return a
}

// draw takes one of the measured runs. The nth attempt at a batch size is the same run under every policy and on
// every GPU: that compares few seeds more fairly.
func (w *world) draw(b *Batch) (epochs float64) {
	if w.draws[b.Size] == nil {
		w.draws[b.Size] = rand.New(rand.NewPCG(uint64(b.Size), w.group.Seed))
	}
	return b.Epochs[w.draws[b.Size].IntN(len(b.Epochs))]
}

// limit returns an epoch at a power limit. If the policy names no limit, it is the cheapest; fresh says that it was
// found by profiling in this attempt.
func (w *world) limit(b *Batch, watts float64) (epoch contract.PowerWindow, fresh bool) {
	if watts != 0 {
		return b.at(watts), false
	}
	epoch, known := w.profiled[b.Size]
	if !known {
		epoch, _ = recur.ChooseLimit(b.Limits, w.group.Eta, w.group.MaxPowerWatts)
		w.profiled[b.Size] = epoch
	}
	return epoch, !known
}

// batch returns a batch size that the policy was offered.
func (t *Training) batch(size int) *Batch {
	at, _ := slices.BinarySearchFunc(t.Batches, size, func(b Batch, size int) int { return b.Size - size })
	return &t.Batches[at]
}

// at returns an epoch at the measured limit nearest to the wanted one.
func (b *Batch) at(watts float64) contract.PowerWindow {
	return slices.MinFunc(b.Limits, func(x, y contract.PowerWindow) int {
		return cmp.Compare(math.Abs(x.LimitWatts-watts), math.Abs(y.LimitWatts-watts))
	})
}

// mean is an epoch with an equal part at each limit.
func (b *Batch) mean() expense {
	var sum expense
	for _, e := range b.Limits {
		sum.add(expense{e.EnergyJoules / float64(len(b.Limits)), e.Seconds / float64(len(b.Limits))})
	}
	return sum
}
