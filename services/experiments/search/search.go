// Package search decides which trials an experiment runs and how far each of them trains. A searcher has no memory: its
// next action follows from its configuration, its seed and the trials so far alone, so an experiment can continue
// wherever it was interrupted. The package runs nothing and reads no clock.
package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// The states of a trial.
const (
	Running = contract.TrialRunning
	Paused  = contract.TrialPaused
	Ended   = contract.TrialEnded
	Stopped = contract.TrialStopped
	Failed  = contract.TrialFailed
)

// Result is the state of a trial at the end of an epoch; 1 is the first.
type Result struct {
	Epoch int `json:"epoch"`
	// Score is the objective, signed so that more is better. NaN is worse than every number.
	Score float64 `json:"score"`
	// Slack is the margin by which each constraint holds, in its own unit; below 0 it is broken. All results of an
	// experiment have the same number of constraints.
	Slack []float64 `json:"slack,omitempty"`
}

// Trial is one training with its own values of the parameters.
type Trial struct {
	// ID is the trial's position in the order in which trials were started, from 0.
	ID     int    `json:"id"`
	Params Params `json:"params"`
	// Epochs is the total number of epochs it is to train for now.
	Epochs int                 `json:"epochs"`
	State  contract.TrialState `json:"state"`
	// Results are in ascending order of epochs; epochs may be missing.
	Results []Result `json:"results,omitempty"`
}

// Verb is what to do with a trial.
type Verb string

// The verbs.
const (
	Start   Verb = "start"   // a new trial
	Promote Verb = "promote" // a paused trial trains on
	Stop    Verb = "stop"    // a running trial ends
)

// Action is something to do now.
type Action struct {
	Verb  Verb `json:"verb"`
	Trial int  `json:"trial"`
	// Params are those of a new trial.
	Params Params `json:"params,omitempty"`
	// Epochs is the trial's new Trial.Epochs, if it starts or is promoted.
	Epochs int `json:"epochs,omitempty"`
	// Reason says in words why a trial is stopped.
	Reason string `json:"reason,omitempty"`
}

// The algorithms.
const (
	Random    = contract.SearchRandom
	Grid      = contract.SearchGrid
	GP        = contract.SearchGP
	Hyperband = contract.SearchHyperband
	ASHA      = contract.SearchASHA
)

// Algorithms lists them.
func Algorithms() []contract.SearchAlgorithm {
	return []contract.SearchAlgorithm{Random, Grid, GP, Hyperband, ASHA}
}

// config completes and checks the search configuration.
type config contract.SearchConfig

// Searcher decides on the trials of an experiment.
type Searcher interface {
	// Next returns what to do now, given the trials so far (trials[i].ID is i) and the number of trials that may run
	// beside the running ones. If nothing is running and Next returns nothing, the experiment is over.
	Next(trials []Trial, free int) []Action
}

// New checks the configuration; its errors are written for the author of the experiment.
func New(space Space, sc contract.SearchConfig) (Searcher, error) {
	c := config(sc).withDefaults()
	if err := errors.Join(space.Check(), c.check()); err != nil {
		return nil, err
	}
	s := searcher{trials: c.Trials, median: (*median)(c.Median)}
	switch cmp.Or(c.Sampler, c.Algorithm) {
	case Grid:
		s.sampler = grid{space, c.Levels}
	case GP:
		s.sampler = newGaussian(space, c.Seed)
	default:
		s.sampler = random{space, c.Seed}
	}
	switch c.Algorithm {
	case Hyperband:
		s.schedule = newHyperband(c)
	case ASHA:
		s.schedule = asha{c.rungs(), c.Reduction}
	default:
		s.schedule = whole{c.MaxEpochs}
	}
	return s, nil
}

func (c config) withDefaults() config {
	c.MinEpochs, c.Reduction, c.Levels = cmp.Or(c.MinEpochs, 1), cmp.Or(c.Reduction, 3), cmp.Or(c.Levels, 4)
	if c.Median != nil {
		m := *c.Median
		m.GraceEpochs, m.Trials = cmp.Or(m.GraceEpochs, 1), cmp.Or(m.Trials, 3)
		c.Median = &m
	}
	return c
}

func (c config) check() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	byHalves := c.Algorithm == Hyperband || c.Algorithm == ASHA
	refuse(!slices.Contains(Algorithms(), c.Algorithm), "algorithm %q: want random, grid, gp, hyperband or asha", c.Algorithm)
	refuse(c.Sampler != "" && !byHalves, "sampler: only hyperband and asha have one")
	refuse(c.Sampler != "" && c.Sampler != Random && c.Sampler != GP, "sampler %q: want random or gp", c.Sampler)
	refuse(c.Trials < 1 || c.Trials > MostTrials, "trials %d: want 1 to %d", c.Trials, MostTrials)
	refuse(c.MaxEpochs < 1 || c.MaxEpochs > MostEpochs, "epochs %d: want 1 to %d", c.MaxEpochs, MostEpochs)
	refuse(c.MinEpochs < 1 || c.MinEpochs > max(c.MaxEpochs, 1), "min_epochs %d: want 1 to %d", c.MinEpochs, c.MaxEpochs)
	refuse(c.Reduction < 2 || c.Reduction > 100, "reduction %d: want 2 to 100", c.Reduction)
	refuse(c.Levels < 1 || c.Levels > 1000, "levels %d: want 1 to 1000", c.Levels)
	if m := c.Median; m != nil {
		refuse(m.GraceEpochs < 1, "median_stopping.grace_epochs %d: want 1 or more", m.GraceEpochs)
		refuse(m.Trials < 1, "median_stopping.trials %d: want 1 or more", m.Trials)
	}
	return errors.Join(errs...)
}

// Bounds of an experiment.
const (
	MostTrials = 10_000
	MostEpochs = 1_000_000
)

// searcher combines a sampler, which chooses points, with a schedule, which chooses epochs.
type searcher struct {
	trials   int
	sampler  sampler
	schedule schedule
	median   *median
}

// sampler chooses points.
type sampler interface {
	// propose returns the point of the next trial; false if none is left.
	propose(trials []Trial) (Params, bool)
}

// schedule decides how far trials train.
type schedule interface {
	// promote returns a paused trial to continue, and how far. complete says that no new trial will come.
	promote(trials []Trial, complete bool) (trial, epochs int, ok bool)
	// start returns how far a new trial trains.
	start(trials []Trial) (epochs int)
}

func (s searcher) Next(trials []Trial, free int) []Action {
	actions := s.median.stops(trials)
	trials = slices.Clone(trials)
	for ; free > 0; free-- {
		a, ok := s.next(trials)
		if !ok {
			break
		}
		actions = append(actions, a)
		if a.Verb == Start {
			trials = append(trials, Trial{ID: a.Trial, Params: a.Params, Epochs: a.Epochs, State: Running})
			continue
		}
		trials[a.Trial].Epochs, trials[a.Trial].State = a.Epochs, Running
	}
	return actions
}

// next returns one promotion, or else one new trial.
func (s searcher) next(trials []Trial) (Action, bool) {
	if id, epochs, ok := s.schedule.promote(trials, false); ok {
		return Action{Verb: Promote, Trial: id, Epochs: epochs}, true
	}
	if len(trials) < s.trials {
		if params, ok := s.sampler.propose(trials); ok {
			return Action{Verb: Start, Trial: len(trials), Params: params, Epochs: s.schedule.start(trials)}, true
		}
	}
	id, epochs, ok := s.schedule.promote(trials, true)
	return Action{Verb: Promote, Trial: id, Epochs: epochs}, ok
}

// At returns the trial's result at the end of an epoch, or the last one before it; false if it has none yet. A broken
// constraint or a NaN score counts as the worst of all.
func (t Trial) At(epoch int) (score float64, ok bool) {
	for _, r := range slices.Backward(t.Results) {
		if r.Epoch > epoch {
			continue
		}
		if r.broken() || math.IsNaN(r.Score) {
			return math.Inf(-1), true
		}
		return r.Score, true
	}
	return math.Inf(-1), false
}

func (r Result) broken() bool {
	return slices.ContainsFunc(r.Slack, func(x float64) bool { return !(x >= 0) })
}
