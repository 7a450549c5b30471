package recurring

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// Row is the result of a policy on one training, as means over the seeds. Ratios are to the expected figures of the
// user's own choice: the default batch size at the highest power limit, failed runs included.
type Row struct {
	GPU     string `json:"gpu"`
	Dataset string `json:"dataset"`
	Policy  string `json:"policy"`
	Figures
	// Interval is half the width of the 95 % interval of each mean.
	Interval Figures `json:"ci95"`
}

// Figures compare policies.
type Figures struct {
	EnergyRatio float64 `json:"energy_ratio"`
	TimeRatio   float64 `json:"time_ratio"`
	CostRatio   float64 `json:"cost_ratio"`
	// Regret is the cost of all recurrences beyond the expected cost of the cheapest configuration, in units of that.
	Regret float64 `json:"regret"`
	// First20EnergyRatio is the energy of the first 20 recurrences.
	First20EnergyRatio float64 `json:"first20_energy_ratio"`
	// WorstTimeRatio is the time of the longest recurrence.
	WorstTimeRatio float64 `json:"worst_time_ratio"`
}

// each calls f with every figure of a and the same figure of the others.
func (a *Figures) each(others []Figures, f func(mine *float64, theirs []float64)) {
	fields := func(x *Figures) []*float64 {
		return []*float64{&x.EnergyRatio, &x.TimeRatio, &x.CostRatio, &x.Regret, &x.First20EnergyRatio, &x.WorstTimeRatio}
	}
	for i, mine := range fields(a) {
		theirs := make([]float64, len(others))
		for k := range others {
			theirs[k] = *fields(&others[k])[i]
		}
		f(mine, theirs)
	}
}

// Run replays a training under a policy for the seeds 1 to seeds.
func Run(t *Training, p recur.Policy, eta float64, seeds int) (Row, error) {
	row := Row{GPU: t.GPU, Dataset: t.Dataset, Policy: p.Name()}
	var all []Figures
	for seed := range seeds {
		spent, err := replay(t, p, eta, uint64(seed+1))
		if err != nil {
			return row, err
		}
		all = append(all, t.judge(spent, eta))
	}
	row.each(all, func(mine *float64, theirs []float64) { *mine = mean(theirs) })
	row.Interval.each(all, func(mine *float64, theirs []float64) { *mine = interval(theirs) })
	return row, nil
}

// Aggregate is the mean regret of a policy and the geometric means of its ratios.
func Aggregate(rows []Row) Figures {
	var a Figures
	var all []Figures
	for _, r := range rows {
		all = append(all, r.Figures)
	}
	a.each(all, func(mine *float64, theirs []float64) {
		if mine == &a.Regret {
			*mine = mean(theirs)
			return
		}
		for i, x := range theirs {
			theirs[i] = math.Log(x)
		}
		*mine = math.Exp(mean(theirs))
	})
	return a
}

const firstRecurrences = 20

// judge compares what recurrences spent with the expectation.
func (t *Training) judge(spent []expense, eta float64) Figures {
	user, oracle := t.expected(*t.batch(t.Default), t.batch(t.Default).at(t.MaxPowerWatts)), t.oracle(eta)
	n := float64(len(spent))
	var sum, first expense
	longest := 0.0
	for i, e := range spent {
		sum.add(e)
		if i < firstRecurrences {
			first.add(e)
		}
		longest = max(longest, e.seconds)
	}
	cost := func(e expense) float64 { return recur.Cost(eta, t.MaxPowerWatts, e.joules, e.seconds) }
	return Figures{
		EnergyRatio: sum.joules / (n * user.joules), TimeRatio: sum.seconds / (n * user.seconds), CostRatio: cost(sum) / (n * cost(user)),
		Regret:             cost(sum)/oracle - n,
		First20EnergyRatio: first.joules / (min(n, firstRecurrences) * user.joules), WorstTimeRatio: longest / user.seconds,
	}
}

// expected is the mean expense of reaching the target, runs that give up before included; infinite if no run reaches
// it.
func (t *Training) expected(b Batch, e contract.PowerWindow) expense {
	sum, reached := 0.0, 0.0
	for _, epochs := range b.Epochs {
		if epochs <= float64(t.MaxEpochs) {
			reached++
		}
		sum += min(epochs, float64(t.MaxEpochs))
	}
	return expense{sum / reached * e.EnergyJoules, sum / reached * e.Seconds}
}

// oracle is the least expected cost of any batch size and power limit.
func (t *Training) oracle(eta float64) float64 {
	least := math.Inf(1)
	for _, b := range t.Batches {
		for _, e := range b.Limits {
			if x := t.expected(b, e); !math.IsInf(x.seconds, 1) {
				least = min(least, recur.Cost(eta, t.MaxPowerWatts, x.joules, x.seconds))
			}
		}
	}
	return least
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// interval is half the width of the 95 % interval of the mean, by the normal distribution; 0 for a single value.
func interval(xs []float64) float64 {
	if len(xs) < 2 {
		return 0
	}
	m, squares := mean(xs), 0.0
	for _, x := range xs {
		squares += (x - m) * (x - m)
	}
	n := float64(len(xs))
	return 1.96 * math.Sqrt(squares/(n-1)/n)
}

// ByPolicy aggregates the rows of each policy.
func ByPolicy(rows []Row) map[string]Figures {
	of := map[string][]Row{}
	for _, r := range rows {
		of[r.Policy] = append(of[r.Policy], r)
	}
	all := make(map[string]Figures, len(of))
	for name, rows := range of {
		all[name] = Aggregate(slices.Clip(rows))
	}
	return all
}
