// Package conduct is the decision core of one experiment: reports about its trials are entered in a record, and the
// record alone determines what to do next. The package runs nothing and reads no clock, so an experiment continues from
// its record wherever it was interrupted.
package conduct

import (
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// The states of an experiment.
const (
	Running  = contract.ExperimentRunning
	Finished = contract.ExperimentFinished
	Stopped  = contract.ExperimentStopped
	Rejected = contract.ExperimentRejected
)

// Record conducts an experiment.
type Record contract.ExperimentRecord

// JobID returns the id of a trial's job.
func JobID(experiment string, trial int) train.JobID {
	return contract.TrialJob(experiment, trial)
}

// New opens the record of an experiment.
func New(id string, e file.Experiment, hash string, at time.Time) Record {
	return Record{ID: id, Experiment: contract.Experiment(e), Hash: hash, State: Running, SubmittedAt: at}
}

// experiment returns the user's request.
func (r *Record) experiment() file.Experiment { return file.Experiment(r.Experiment) }

// trial returns the trial of a job.
func (r *Record) trial(job train.JobID) *contract.Trial {
	i := slices.IndexFunc(r.Trials, func(t contract.Trial) bool { return t.Job == job && !t.Foreign })
	if i < 0 {
		return nil
	}
	return &r.Trials[i]
}

// Over reports whether nothing more is decided.
func (r *Record) Over() bool { return (*contract.ExperimentRecord)(r).Over() }

// Settled reports whether the experiment is over, all its jobs have ended, and their energy is final.
func (r *Record) Settled() bool {
	open := func(t contract.Trial) bool { return t.JobState == "" && !t.Foreign || !t.Closed && t.Ran() }
	return r.Over() && !slices.ContainsFunc(r.Trials, open)
}

// Results returns the trial's epochs as searches compare them, and an error if an epoch lacks a required result.
func (r *Record) Results(t *contract.Trial) ([]search.Result, error) {
	var results []search.Result
	var missing error
	seconds := 0.0
	for _, e := range t.Done {
		seconds += e.Seconds
		result, err := r.experiment().Result(file.Report{Epoch: e.Epoch, Metrics: e.Metrics, Seconds: seconds, Joules: e.Joules})
		if err != nil {
			missing = err
			continue
		}
		results = append(results, result)
	}
	return results, missing
}

// History returns the trials as a search sees them.
func (r *Record) History() []search.Trial {
	history := make([]search.Trial, len(r.Trials))
	for i := range r.Trials {
		t := &r.Trials[i]
		results, _ := r.Results(t)
		if (*contract.ExperimentRecord)(r).Diverged(t) {
			results = append(results, search.Result{Epoch: t.EpochsDone(), Score: math.NaN(), Slack: broken(len(r.Experiment.Constraints))})
		}
		history[i] = search.Trial{ID: t.ID, Params: t.Params, Epochs: t.Epochs, State: t.State, Results: results}
	}
	return history
}

// broken returns the slack of constraints of which nothing is known.
func broken(constraints int) []float64 { return slices.Repeat([]float64{math.NaN()}, constraints) }

// Best returns the best trial with its score; false if none has a result.
func (r *Record) Best() (*contract.Trial, float64, bool) {
	best := (*contract.ExperimentRecord)(r).Best()
	if best == nil {
		return nil, 0, false
	}
	return &r.Trials[best.Trial], r.Own(best.Value), true
}
