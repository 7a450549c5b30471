package search

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// whole trains every trial to its end.
type whole struct{ epochs int }

func (w whole) promote([]Trial, bool) (trial, epochs int, ok bool) { return 0, 0, false }
func (w whole) start([]Trial) int                                  { return w.epochs }

// rungs returns the epochs at which trials are compared, the whole training last: each is the next divided by the
// reduction, none below MinEpochs. No rung is one epoch before the end: a job stops before it begins an epoch, and no
// job is kept from its last one (docs/job-api.md).
func (c config) rungs() []int {
	rungs := []int{c.MaxEpochs}
	for part := float64(c.Reduction); ; part *= float64(c.Reduction) {
		rung := int(math.Ceil(float64(c.MaxEpochs) / part))
		if rung < c.MinEpochs || rung >= rungs[0] {
			return slices.DeleteFunc(rungs, func(rung int) bool { return rung == c.MaxEpochs-1 })
		}
		rungs = slices.Insert(rungs, 0, rung)
	}
}

// asha promotes a trial as soon as it is among the best of those that reached its rung, without waiting for others.
// When only promotions remain, the best of each rung is promoted anyway, so that a search of few trials ends with a
// whole training.
type asha struct {
	rungs     []int
	reduction int
}

func (a asha) start([]Trial) int { return a.rungs[0] }

func (a asha) promote(trials []Trial, complete bool) (trial, epochs int, ok bool) {
	least := 0
	if complete && !slices.ContainsFunc(trials, func(t Trial) bool { return t.State == Running }) {
		least = 1
	}
	for k := len(a.rungs) - 2; k >= 0; k-- {
		var came []Trial
		for _, t := range trials {
			if t.settledAt(a.rungs[k]) {
				came = append(came, t)
			}
		}
		for _, t := range best(came, a.rungs[k], max(len(came)/a.reduction, least)) {
			if t.State == Paused && t.Epochs == a.rungs[k] {
				return t.ID, a.rungs[k+1], true
			}
		}
	}
	return 0, 0, false
}

// settledAt reports whether the trial reached a rung and its result there can no longer change.
func (t Trial) settledAt(rung int) bool {
	switch t.State {
	case Running:
		return t.Epochs > rung // it was promoted from there
	case Stopped:
		return t.last() >= rung
	case Paused, Ended, Failed:
	}
	return t.Epochs >= rung
}

// best returns the n best of trials at a rung, the earlier of equals first, without those that failed or broke a
// constraint.
func best(trials []Trial, rung, n int) []Trial {
	able := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool {
		score, _ := t.At(rung)
		return t.State == Failed || math.IsInf(score, -1)
	})
	slices.SortStableFunc(able, func(x, y Trial) int {
		a, _ := x.At(rung)
		b, _ := y.At(rung)
		return cmp.Compare(b, a)
	})
	return able[:min(n, len(able))]
}

// hyperband runs brackets of trials, from many trials with few epochs to a few whole trainings; each bracket halves in
// steps. Brackets follow each other in the order of the trials, and a new one begins while the last one still waits for
// results.
type hyperband struct {
	brackets  []bracket
	reduction int
}

// bracket is a group of trials that begin at the first of some rungs.
type bracket struct {
	trials int
	rungs  []int
}

func newHyperband(c config) hyperband {
	rungs := c.rungs()
	h := hyperband{reduction: c.Reduction}
	for i := range rungs {
		steps := len(rungs) - 1 - i
		n := math.Ceil(float64(len(rungs)) / float64(steps+1) * math.Pow(float64(c.Reduction), float64(steps)))
		h.brackets = append(h.brackets, bracket{int(n), rungs[i:]})
	}
	return h
}

func (h hyperband) start(trials []Trial) int {
	left := len(trials)
	for i := 0; ; i = (i + 1) % len(h.brackets) {
		b := h.brackets[i]
		if left < b.trials {
			return b.rungs[0]
		}
		left -= b.trials
	}
}

func (h hyperband) promote(trials []Trial, complete bool) (trial, epochs int, ok bool) {
	for i := 0; len(trials) > 0; i = (i + 1) % len(h.brackets) {
		b := h.brackets[i]
		n := min(b.trials, len(trials))
		if n == b.trials || complete {
			if trial, epochs, ok = b.promote(trials[:n], h.reduction); ok {
				return trial, epochs, true
			}
		}
		trials = trials[n:]
	}
	return 0, 0, false
}

// promote compares the trials of a rung once all of them have reached it.
func (b bracket) promote(trials []Trial, reduction int) (trial, epochs int, ok bool) {
	n := len(trials)
	for k := range len(b.rungs) - 1 {
		waits := func(t Trial) bool { return t.State == Running && t.Epochs <= b.rungs[k] }
		if slices.ContainsFunc(trials, waits) {
			return 0, 0, false
		}
		n = max(n/reduction, 1)
		trials = best(trials, b.rungs[k], n)
		for _, t := range trials {
			if t.State == Paused && t.Epochs == b.rungs[k] {
				return t.ID, b.rungs[k+1], true
			}
		}
	}
	return 0, 0, false
}

// median is the rule of Google Vizier (KDD 2017).
type median contract.MedianStopping

func (m *median) stops(trials []Trial) []Action {
	if m == nil {
		return nil
	}
	var actions []Action
	for _, t := range trials {
		if t.State != Running || t.last() == 0 {
			continue
		}
		epoch := t.last()
		others := m.others(trials, t.ID, epoch)
		if epoch < m.GraceEpochs || epoch >= t.Epochs || len(others) < m.Trials {
			continue
		}
		slices.Sort(others)
		middle := (others[(len(others)-1)/2] + others[len(others)/2]) / 2
		if high, _ := t.upTo(epoch); high < middle {
			reason := fmt.Sprintf("at epoch %d its best is %.4g, the median of %d other trials %.4g", epoch, high,
				len(others), middle)
			actions = append(actions, Action{Verb: Stop, Trial: t.ID, Reason: reason})
		}
	}
	return actions
}

// others returns the averages of the other trials that came as far.
func (m *median) others(trials []Trial, except, epoch int) []float64 {
	var averages []float64
	for _, t := range trials {
		if t.ID == except || t.State == Failed || t.last() < epoch {
			continue
		}
		if _, mean := t.upTo(epoch); !math.IsNaN(mean) {
			averages = append(averages, mean)
		}
	}
	return averages
}

// upTo returns the best and the mean score up to an epoch. The mean is NaN if a constraint was broken.
func (t Trial) upTo(epoch int) (high, mean float64) {
	high, n := math.Inf(-1), 0
	for _, r := range t.Results {
		if r.Epoch <= epoch {
			score := r.Score
			if r.broken() || math.IsNaN(score) {
				score = math.NaN()
			} else {
				high = max(high, score)
			}
			mean, n = mean+score, n+1
		}
	}
	return high, mean / float64(n)
}
