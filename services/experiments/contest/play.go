// Package contest plays searchers against each other, in virtual time, on problems of which everything is known: functions that the literature uses, learning
// curves, and trainings that were recorded. It says how much each of them has to try until it holds one of the best points.
package contest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Problem is something to search, trained in epochs.
type Problem struct {
	Name  string
	Space search.Space
	// MaxEpochs is a whole training, MinEpochs and Reduction what hyperband and asha are given.
	MaxEpochs, MinEpochs, Reduction int
	// Score is what a point has after some epochs, more being better; no number where nothing is reported. What varies from run to run is drawn from r.
	Score func(p search.Params, epochs int, r *rand.Rand) float64
	// Quality is the score of a whole training without chance.
	Quality func(p search.Params) float64
}

// Best gives the quality that the best part of the space has: of all points where they are few, else of 20,000 at random.
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
	Config  search.Config
	// Workers is how many trials train at a time.
	Workers int
	// Wanted is the quality that is sought.
	Wanted float64
}

// Outcome is what a search had spent when the first trial whose point is good enough had trained to its end.
type Outcome struct {
	Reached bool
	// Trials were started by then and Epochs trained, over all trials; Time is the virtual time, an epoch of an average trial being 1.
	Trials, Epochs int
	Time           float64
}

// course is a trial in virtual time.
type course struct {
	epochs int
	pace   float64 // time of an epoch
	next   float64 // when the running epoch ends
	draw   *rand.Rand
}

// Run plays until the wanted quality is reached, or the search is over.
func (p Play) Run() (Outcome, error) {
	c := p.Config
	c.MaxEpochs, c.MinEpochs, c.Reduction = p.Problem.MaxEpochs, p.Problem.MinEpochs, p.Problem.Reduction
	searcher, err := search.New(p.Problem.Space, c)
	if err != nil {
		return Outcome{}, fmt.Errorf("play %s on %s: %w", c.Algorithm, p.Problem.Name, err)
	}
	var trials []search.Trial
	var courses []course
	var o Outcome
	for {
		running := 0
		for _, t := range trials {
			if t.State == search.Running {
				running++
			}
		}
		for _, a := range searcher.Next(trials, p.Workers-running) {
			switch a.Verb {
			case search.Start:
				draw := rand.New(rand.NewPCG(c.Seed, uint64(1000+a.Trial)))
				pace := 0.5 + draw.Float64()
				trials = append(trials, search.Trial{ID: a.Trial, Params: a.Params, Epochs: a.Epochs, State: search.Running})
				courses = append(courses, course{pace: pace, next: o.Time + pace, draw: draw})
			case search.Promote:
				trials[a.Trial].Epochs, trials[a.Trial].State = a.Epochs, search.Running
				courses[a.Trial].next = o.Time + courses[a.Trial].pace
			case search.Stop:
				trials[a.Trial].State = search.Stopped
			}
		}
		i := soonest(trials, courses)
		if i < 0 {
			o.Trials = len(trials)
			return o, nil
		}
		o.Time, o.Epochs = courses[i].next, o.Epochs+1
		if p.train(&trials[i], &courses[i]) {
			o.Reached, o.Trials = true, len(trials)
			return o, nil
		}
	}
}

// soonest is the running trial whose epoch ends next, -1 where none runs.
func soonest(trials []search.Trial, courses []course) int {
	next := -1
	for i, t := range trials {
		if t.State == search.Running && (next < 0 || courses[i].next < courses[next].next) {
			next = i
		}
	}
	return next
}

// train ends an epoch, and says whether the trial has thereby reached what is wanted.
func (p Play) train(t *search.Trial, c *course) bool {
	c.epochs++
	c.next += c.pace
	if score := p.Problem.Score(t.Params, c.epochs, c.draw); !math.IsNaN(score) {
		t.Results = append(t.Results, search.Result{Epoch: c.epochs, Score: score})
	}
	if c.epochs >= t.Epochs {
		t.State = search.Paused
	}
	return c.epochs == p.Problem.MaxEpochs && p.Problem.Quality(t.Params) >= p.Wanted
}
