package conduct

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Decide enters what follows from the record and the ground truth: which trials start, continue and stop, their system
// parameters, and whether the experiment is over.
func (r *Record) Decide(known profile.Store, now time.Time) error {
	if r.Over() {
		return nil
	}
	searcher, err := r.searcher()
	if err != nil {
		return fmt.Errorf("decide on %s: %w", r.ID, err)
	}
	started := len(r.Trials)
	for r.follow(searcher, known, now) {
	}
	for i := range r.Trials {
		r.retune(&r.Trials[i], known, now)
	}
	if r.running() == 0 {
		r.finish(r.spent(now), now)
	}
	return r.bound(started, now)
}

// bound stops an experiment whose record has become too large. It keeps only the trials that had started before: the
// jobs of the others were not submitted.
func (r *Record) bound(started int, now time.Time) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.ID, err)
	}
	if len(data) > MostBytes && !r.Over() {
		r.Trials = r.Trials[:started]
		r.Stop(fmt.Sprintf("its record has reached its limit of %d MiB: search with fewer trials, epochs or metrics", MostBytes>>20),
			now)
	}
	return nil
}

// running returns the number of trials that train or wait to.
func (r *Record) running() int {
	n := 0
	for _, t := range r.Trials {
		if t.State == search.Running {
			n++
		}
	}
	return n
}

// follow carries out the search's next actions. again reports that trials were stopped: the search has not yet filled
// their places.
func (r *Record) follow(searcher search.Searcher, known profile.Store, now time.Time) (again bool) {
	for _, a := range searcher.Next(r.History(), max(r.Experiment.Concurrency-r.running(), 0)) {
		switch {
		case a.Verb == search.Stop:
			stopTrial(&r.Trials[a.Trial], a.Reason, now)
			again = true
		case r.spent(now) != "":
		case a.Verb == search.Start:
			r.start(a, known, now)
		case a.Verb == search.Promote:
			t := &r.Trials[a.Trial]
			t.State, t.Epochs = search.Running, a.Epochs
		}
	}
	return again
}

// start adds a new trial. The ground truth about its workload counts from its first epoch on.
func (r *Record) start(a search.Action, known profile.Store, now time.Time) {
	r.Trials = append(r.Trials, contract.Trial{
		ID: a.Trial, Job: JobID(r.ID, a.Trial), Params: a.Params, Epochs: a.Epochs, State: search.Running, DecidedAt: now,
		Settings: []contract.SettingValues{r.experiment().Setting(a.Params)},
	})
	if t := &r.Trials[len(r.Trials)-1]; r.pipelines() {
		trial := r.pipelined(t, known)
		t.Settings[0] = r.rule().Next(&trial, known.Records())
	}
}

// spent names the part of the budget that is used up; empty if none is. A running trial counts with all the epochs it
// is to train, an ended one with those it trained.
func (r *Record) spent(now time.Time) string {
	b, epochs := r.Experiment.Budget, 0
	for _, t := range r.Trials {
		if t.State == search.Running {
			epochs += t.Epochs
		} else {
			epochs += t.EpochsDone()
		}
	}
	switch {
	case b.Epochs > 0 && epochs >= b.Epochs:
		return fmt.Sprintf("the budget of %d epochs is used up", b.Epochs)
	case b.Hours > 0 && now.Sub(r.SubmittedAt).Hours() >= b.Hours:
		return fmt.Sprintf("the budget of %g hours is used up", b.Hours)
	}
	return ""
}

// finish ends an experiment in which nothing runs any more. It gives up paused trials.
func (r *Record) finish(why string, now time.Time) {
	for i := range r.Trials {
		stopTrial(&r.Trials[i], "others were better", now)
	}
	r.State, r.EndedAt, r.Message = Finished, now, why
	if _, _, ok := r.Best(); !ok {
		r.Message = "no trial has a result"
	}
}
