package contest

import (
	"slices"

	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Entrant is a way to search, as the table calls it.
type Entrant struct {
	Name   string
	Config search.Config
}

// Entrants are those that make sense on a problem: without epochs there is nothing to stop early.
func Entrants(p Problem) []Entrant {
	all := []Entrant{
		{"random", search.Config{Algorithm: search.Random}}, {"gp", search.Config{Algorithm: search.GP}},
	}
	if p.MaxEpochs == 1 {
		return all
	}
	median := &search.Median{GraceEpochs: max(1, p.MaxEpochs/9)}
	return append(
		all,
		Entrant{"random+median", search.Config{Algorithm: search.Random, Median: median}},
		Entrant{"gp+median", search.Config{Algorithm: search.GP, Median: median}},
		Entrant{"hyperband", search.Config{Algorithm: search.Hyperband}},
		Entrant{"asha", search.Config{Algorithm: search.ASHA}},
		Entrant{"asha+gp", search.Config{Algorithm: search.ASHA, Sampler: search.GP}},
	)
}

// Row is how an entrant did on a problem, over seeds. A seed that did not reach what was wanted counts with what it spent.
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
	at := func(q float64) float64 {
		where := q * float64(len(values)-1)
		i := int(where)
		j := min(i+1, len(values)-1)
		return values[i] + (where-float64(i))*(values[j]-values[i])
	}
	return Spread{at(0.5), at(0.25), at(0.75)}
}

// mostTrials is where a search that finds nothing is given up.
const mostTrials = 100

// Match lets an entrant play a problem with the seeds from 1, Workers trials at a time, until it holds one of the best part of all points.
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
