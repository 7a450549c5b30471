package conduct

import (
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Settings are what is wanted of the jobs that have not ended.
func (r *Record) Settings() []train.Setting {
	var all []train.Setting
	for i := range r.Trials {
		if t := &r.Trials[i]; t.own() {
			all = append(all, r.setting(t))
		}
	}
	return all
}

// own says whether the trial has a job that has not ended.
func (t *Trial) own() bool { return t.JobState == "" && !t.Foreign }

func (r *Record) setting(t *Trial) train.Setting {
	s := train.Setting{Job: t.Job, Experiment: train.JobID(r.ID), Generation: uint64(len(t.Settings)), Values: t.Setting()}
	if t.Epochs < r.Experiment.Search.MaxEpochs {
		s.PauseAfter = t.Epochs
	}
	// A command that names parameters is another one for each setting.
	template, job := r.Experiment.Job, r.Experiment.TrialJob(t.ID, t.Epochs, t.Params, t.Setting())
	if s.Wants(train.SettingMicroBatch) {
		s.BatchSize = job.BatchSize
	}
	s.BatchDevices = r.Experiment.BatchDevices()
	if !slices.Equal(job.Command, template.Command) {
		s.Command = job.Command
	}
	for name, value := range template.Env {
		if job.Env[name] != value {
			if s.Env == nil {
				s.Env = map[string]string{}
			}
			s.Env[name] = job.Env[name]
		}
	}
	return s
}

// Submissions are the jobs of all trials that may not have been submitted yet: those of which nothing was heard. Those of trials that were stopped meanwhile are
// among them: only a job that was submitted can be cancelled, and it may have been submitted.
func (r *Record) Submissions() []event.Fact {
	var facts []event.Fact
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.RunAt.IsZero() && len(t.Done) == 0 && t.own() {
			spec := r.Experiment.TrialJob(t.ID, t.Epochs, t.Params, t.Setting())
			facts = append(facts, event.OnceFact(t.Job, event.FactSubmitted, "submitted", event.Submitted{Spec: spec}))
		}
	}
	return facts
}

// Cancellations end the jobs of trials that were stopped.
func (r *Record) Cancellations() []event.Fact {
	var facts []event.Fact
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.State == search.Stopped && t.own() {
			body := event.CancelRequested{By: "experiment " + r.ID, Reason: t.Reason}
			facts = append(facts, event.JobFact(t.Job, event.FactCancelRequested, "cancel", body))
		}
	}
	return facts
}

// Tell gives what is to be told and notes that it was: the note is kept once the facts are stored.
func (r *Record) Tell() []event.Fact {
	var facts []event.Fact
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.ToldStart < t.Epochs {
			t.ToldStart = t.Epochs
			facts = append(facts, event.TuneFact(r.ID, event.FactTrialStarted, fmt.Sprintf("trial/%d/started/%d", t.ID, t.Epochs), r.trialStarted(t)))
		}
		if end := fmt.Sprintf("%s/%d", t.State, t.Epochs); t.State != search.Running && t.ToldEnd != end {
			t.ToldEnd = end
			facts = append(facts, event.TuneFact(r.ID, event.FactTrialEnded, fmt.Sprintf("trial/%d/%s", t.ID, end), r.trialEnded(t)))
		}
	}
	if r.Over() && !r.Told {
		r.Told = true
		name := event.FactFinished
		if r.State == Stopped {
			name = event.FactStopped
		}
		facts = append(facts, event.TuneOnceFact(r.ID, name, r.ended()))
	}
	return facts
}

func (r *Record) trialStarted(t *Trial) event.TrialStarted {
	params := map[string]any{}
	for name, v := range t.Params {
		params[name] = v
	}
	return event.TrialStarted{Trial: t.ID, Job: t.Job, Params: params, Epochs: t.Epochs, Setting: t.Setting()}
}

func (r *Record) trialEnded(t *Trial) event.TrialEnded {
	body := event.TrialEnded{
		Trial: t.ID, Job: t.Job, State: string(t.State), Reason: t.Reason, EpochsDone: t.EpochsDone(), Seconds: t.Seconds(), EnergyJoules: t.Joules(),
	}
	if results, _ := r.Results(t); len(results) > 0 {
		body.Score = &results[len(results)-1].Score
	}
	return body
}

func (r *Record) ended() event.ExperimentEnded {
	body := event.ExperimentEnded{Message: r.Message, Trials: len(r.Trials), Seconds: r.EndedAt.Sub(r.SubmittedAt).Seconds(), EndedAt: r.EndedAt}
	if best, score, ok := r.Best(); ok {
		body.Best, body.Score = &best.ID, &score
	}
	return body
}
