// Package contest plays searchers against each other, in virtual time, on problems whose answers are known: functions
// from the literature, learning curves, and recorded trainings. It measures how much each searcher tries until it
// holds one of the best points.
package contest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Problem is something to search, trained in epochs.
type Problem struct {
	Name  string
	Space search.Space
	// MaxEpochs is a whole training. MinEpochs and Reduction are for hyperband and asha.
	MaxEpochs, MinEpochs, Reduction int
	// Score is the score of a point after some epochs; more is better, NaN if the training reports none. Chance comes
	// from r.
	Score func(p search.Params, epochs int, r *rand.Rand) float64
	// Quality is the score of a whole training without chance.
	Quality func(p search.Params) float64
}

// Best returns the least quality among the best part of the space: of all points if they are few, else of 20,000 at
// random.
func (p Problem) Best(part float64) float64 {
	const many = 20_000
	points, finite := p.Space.Finite(many)
	if !finite {
		r := rand.New(rand.NewPCG(1, 1))
		for range many {
			unit := make([]float64, len(p.Space))
			for i := range unit {
				unit[i] = r.Float64()
			}
			points = append(points, p.Space.At(unit))
		}
	}
	qualities := make([]float64, len(points))
	for i, x := range points {
		qualities[i] = -p.Quality(x)
	}
	slices.Sort(qualities)
	return -qualities[int(math.Ceil(part*float64(len(qualities))))-1]
}

// Play is one search on one problem.
type Play struct {
	Problem Problem
	Config  contract.SearchConfig
	// Workers is the number of trials that train at a time.
	Workers int
	// Wanted is the quality to reach.
	Wanted float64
}

// Outcome is what a search spent until the first trial with a good enough point had trained to its end.
type Outcome struct {
	Reached bool
	// Trials counts the trials started by then, Epochs the epochs of all of them. Time is virtual: an epoch of an
	// average trial takes 1.
	Trials, Epochs int
	Time           float64
}

// course is the progress of a trial in virtual time.
type course struct {
	epochs int
	pace   float64 // time of an epoch
	next   float64 // when the running epoch ends
	draw   *rand.Rand
}

// table is a play in progress.
type table struct {
	Play
	seed    uint64
	trials  []search.Trial
	courses []course
	outcome Outcome
}

// Run plays until the wanted quality is reached, or the search is over.
func (p Play) Run() (Outcome, error) {
	c := p.Config
	c.MaxEpochs, c.MinEpochs, c.Reduction = p.Problem.MaxEpochs, p.Problem.MinEpochs, p.Problem.Reduction
	searcher, err := search.New(p.Problem.Space, c)
	if err != nil {
		return Outcome{}, fmt.Errorf("play %s on %s: %w", c.Algorithm, p.Problem.Name, err)
	}
	t := table{Play: p, seed: c.Seed}
	for !t.outcome.Reached {
		actions := searcher.Next(t.trials, p.Workers-t.running())
		for _, a := range actions {
			t.act(a)
		}
		if i := t.soonest(); i >= 0 {
			t.train(i)
		} else if len(actions) == 0 {
			break
		}
	}
	t.outcome.Trials = len(t.trials)
	return t.outcome, nil
}

func (t *table) running() int {
	n := 0
	for _, trial := range t.trials {
		if trial.State == search.Running {
			n++
		}
	}
	return n
}

func (t *table) act(a search.Action) {
	switch a.Verb {
	case search.Start:
		draw := rand.New(rand.NewPCG(t.seed, uint64(1000+a.Trial)))
		pace := 0.5 + draw.Float64()
		t.trials = append(t.trials, search.Trial{ID: a.Trial, Params: a.Params, Epochs: a.Epochs, State: search.Running})
		t.courses = append(t.courses, course{pace: pace, next: t.outcome.Time + pace, draw: draw})
	case search.Promote:
		t.trials[a.Trial].Epochs, t.trials[a.Trial].State = a.Epochs, search.Running
		t.courses[a.Trial].next = t.outcome.Time + t.courses[a.Trial].pace
	case search.Stop:
		t.trials[a.Trial].State = search.Stopped
	}
}

// soonest returns the running trial whose epoch ends next, -1 if no trial runs.
func (t *table) soonest() int {
	next := -1
	for i, trial := range t.trials {
		if trial.State == search.Running && (next < 0 || t.courses[i].next < t.courses[next].next) {
			next = i
		}
	}
	return next
}

// train ends an epoch of a trial.
func (t *table) train(i int) {
	trial, c := &t.trials[i], &t.courses[i]
	t.outcome.Time, t.outcome.Epochs = c.next, t.outcome.Epochs+1
	c.epochs++
	c.next += c.pace
	if score := t.Problem.Score(trial.Params, c.epochs, c.draw); !math.IsNaN(score) {
		trial.Results = append(trial.Results, search.Result{Epoch: c.epochs, Score: score})
	}
	if c.epochs >= trial.Epochs {
		trial.State = search.Paused
	}
	t.outcome.Reached = c.epochs == t.Problem.MaxEpochs && t.Problem.Quality(trial.Params) >= t.Wanted
}
