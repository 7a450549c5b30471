// Package search decides which trials an experiment runs and how far each of them trains. A searcher has no memory: what it does next follows from its
// configuration, its seed and the trials so far alone, so an experiment goes on wherever it was interrupted. It runs nothing and reads no clock.
package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// State is where a trial stands.
type State string

// The states.
const (
	Running State = "running" // trains, or waits to, up to its Epochs
	Paused  State = "paused"  // has trained its Epochs and can go on from its checkpoint
	Ended   State = "ended"   // ended by itself before that: its last result counts for all later epochs
	Stopped State = "stopped" // was stopped before that: its results count, it never goes on
	Failed  State = "failed"  // has no result that counts
)

// Result is what a trial had reached at the end of an epoch; 1 is the first.
type Result struct {
	Epoch int `json:"epoch"`
	// Score is the objective, in such a sign that more is better. What is no number is worse than every number.
	Score float64 `json:"score"`
	// Slack is by how much each constraint is kept, in its own unit; below 0 it is broken. All results of an experiment have as many.
	Slack []float64 `json:"slack,omitempty"`
}

// Trial is one training with its own values of the parameters.
type Trial struct {
	// ID is the trial's place in the order in which trials were started, from 0.
	ID     int    `json:"id"`
	Params Params `json:"params"`
	// Epochs is how many epochs in all it is to train for now.
	Epochs int   `json:"epochs"`
	State  State `json:"state"`
	// Results are in ascending order of epochs; epochs may be missing.
	Results []Result `json:"results,omitempty"`
}

// Verb says what to do with a trial.
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
	// Epochs is the trial's new Trial.Epochs, where it starts or goes on.
	Epochs int `json:"epochs,omitempty"`
	// Reason says in words why a trial is stopped.
	Reason string `json:"reason,omitempty"`
}

// Algorithm names a way to search.
type Algorithm string

// The algorithms.
const (
	Random    Algorithm = "random"
	Grid      Algorithm = "grid"
	GP        Algorithm = "gp"        // Bayesian optimisation on Gaussian processes
	Hyperband Algorithm = "hyperband" // Li et al., JMLR 2018
	ASHA      Algorithm = "asha"      // Li et al., MLSys 2020
)

// Algorithms lists them.
func Algorithms() []Algorithm { return []Algorithm{Random, Grid, GP, Hyperband, ASHA} }

// Config says how to search.
type Config struct {
	Algorithm Algorithm `json:"algorithm"`
	// Sampler is who chooses the points of hyperband and asha: Random (default) or GP.
	Sampler Algorithm `json:"sampler,omitempty"`
	// Trials is the most trials that are started.
	Trials int `json:"trials"`
	// Seed makes two searches differ.
	Seed uint64 `json:"seed"`
	// MaxEpochs is how many epochs a whole training has, MinEpochs (default 1) how many hyperband and asha give each trial at least.
	MaxEpochs int `json:"max_epochs"`
	MinEpochs int `json:"min_epochs,omitempty"`
	// Reduction is how many trials hyperband and asha let go for each that they promote, that one included (default 3).
	Reduction int `json:"reduction,omitempty"`
	// Levels is how many values of a range the grid has (default 4).
	Levels int `json:"levels,omitempty"`
	// Median, if set, stops running trials that the others have left behind.
	Median *Median `json:"median_stopping,omitempty"`
}

// Searcher decides on the trials of an experiment.
type Searcher interface {
	// Next gives what to do now, of the trials so far (trials[i].ID is i) and the number of trials that may run beside those that do. Where nothing is
	// running and Next gives nothing, the experiment is over.
	Next(trials []Trial, free int) []Action
}

// New checks the configuration, whose errors are in words for whoever wrote it.
func New(space Space, c Config) (Searcher, error) {
	c = c.withDefaults()
	if err := errors.Join(space.Check(), c.check()); err != nil {
		return nil, err
	}
	s := searcher{trials: c.Trials, median: c.Median}
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

func (c Config) withDefaults() Config {
	c.MinEpochs, c.Reduction, c.Levels = cmp.Or(c.MinEpochs, 1), cmp.Or(c.Reduction, 3), cmp.Or(c.Levels, 4)
	if c.Median != nil {
		m := *c.Median
		m.GraceEpochs, m.Trials = cmp.Or(m.GraceEpochs, 1), cmp.Or(m.Trials, 3)
		c.Median = &m
	}
	return c
}

func (c Config) check() error {
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

// searcher lets a sampler choose points and a schedule the epochs.
type searcher struct {
	trials   int
	sampler  sampler
	schedule schedule
	median   *Median
}

// sampler chooses points.
type sampler interface {
	// propose gives the point of the next trial; false where there is none left.
	propose(trials []Trial) (Params, bool)
}

// schedule decides how far trials train.
type schedule interface {
	// promote gives a paused trial that shall go on, and how far. complete says that no new trial will come.
	promote(trials []Trial, complete bool) (trial, epochs int, ok bool)
	// start gives how far a new trial shall train.
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

// next is one promotion, or else one new trial.
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

// At gives the trial's result at the end of an epoch, or the last one before it; false where it has none yet. A broken constraint or a score that is no number
// counts as the worst of all.
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

// Best gives the trial whose newest result is the best of those that break no constraint, the earliest of equals; false where there is none.
func Best(trials []Trial) (best Trial, ok bool) {
	most := math.Inf(-1)
	for _, t := range trials {
		if score, _ := t.At(math.MaxInt); t.State != Failed && score > most {
			best, most, ok = t, score, true
		}
	}
	return best, ok
}

// Furthest gives those of the trials that have not failed and break no constraint whose newest result is of the latest epoch.
func Furthest(trials []Trial) []Trial {
	var furthest []Trial
	for _, t := range trials {
		if score, _ := t.At(math.MaxInt); t.State == Failed || math.IsInf(score, -1) {
			continue
		}
		if len(furthest) > 0 && t.last() > furthest[0].last() {
			furthest = nil
		}
		if len(furthest) == 0 || t.last() == furthest[0].last() {
			furthest = append(furthest, t)
		}
	}
	return furthest
}
