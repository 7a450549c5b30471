package contest

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Entrant is a way to search, with its name in the table.
type Entrant struct {
	Name   string
	Config contract.SearchConfig
}

// Entrants are those that make sense on a problem: without epochs there is nothing to stop early.
func Entrants(p Problem) []Entrant {
	all := []Entrant{
		{"random", contract.SearchConfig{Algorithm: search.Random}}, {"gp", contract.SearchConfig{Algorithm: search.GP}},
	}
	if p.MaxEpochs == 1 {
		return all
	}
	median := &contract.MedianStopping{GraceEpochs: max(1, p.MaxEpochs/9)}
	return append(
		all,
		Entrant{"random+median", contract.SearchConfig{Algorithm: search.Random, Median: median}},
		Entrant{"gp+median", contract.SearchConfig{Algorithm: search.GP, Median: median}},
		Entrant{"hyperband", contract.SearchConfig{Algorithm: search.Hyperband}},
		Entrant{"asha", contract.SearchConfig{Algorithm: search.ASHA}},
		Entrant{"asha+gp", contract.SearchConfig{Algorithm: search.ASHA, Sampler: search.GP}},
	)
}

// Row is the result of an entrant on a problem, over seeds. A seed that did not reach the goal counts with all that
// it spent.
type Row struct {
	Problem   string  `json:"problem"`
	Algorithm string  `json:"algorithm"`
	BestPart  float64 `json:"best_part"`
	Seeds     int     `json:"seeds"`
	Reached   int     `json:"reached"`
	Trials    Spread  `json:"trials"`
	Epochs    Spread  `json:"epochs"`
	Time      Spread  `json:"time"`
}

// Spread is a median with its quartiles.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func spread(values []float64) Spread {
	slices.Sort(values)
	return Spread{sim.Percentile(values, 0.5), sim.Percentile(values, 0.25), sim.Percentile(values, 0.75)}
}

// mostTrials bounds a search that does not reach the goal.
const mostTrials = 100

// Match plays an entrant on a problem with the seeds from 1, Workers trials at a time, until it holds a point of the
// best part.
type Match struct {
	Problem  Problem
	Entrant  Entrant
	BestPart float64
	Seeds    int
	Workers  int
}

// Compete plays the match.
func (m Match) Compete() (Row, error) {
	row := Row{Problem: m.Problem.Name, Algorithm: m.Entrant.Name, BestPart: m.BestPart, Seeds: m.Seeds}
	wanted := m.Problem.Best(m.BestPart)
	var trials, epochs, times []float64
	for seed := range m.Seeds {
		c := m.Entrant.Config
		c.Trials, c.Seed = mostTrials, uint64(seed+1)
		o, err := Play{Problem: m.Problem, Config: c, Workers: m.Workers, Wanted: wanted}.Run()
		if err != nil {
			return row, err
		}
		if o.Reached {
			row.Reached++
		}
		trials, epochs, times = append(trials, float64(o.Trials)), append(epochs, float64(o.Epochs)), append(times, o.Time)
	}
	row.Trials, row.Epochs, row.Time = spread(trials), spread(epochs), spread(times)
	return row, nil
}
