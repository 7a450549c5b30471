package conduct

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Settings returns the desired settings of the jobs that have not ended.
func (r *Record) Settings() []train.Setting {
	var all []train.Setting
	for i := range r.Trials {
		if t := &r.Trials[i]; ownsJob(t) {
			all = append(all, r.setting(t))
		}
	}
	return all
}

// ownsJob reports whether the trial has a job that has not ended.
func ownsJob(t *contract.Trial) bool { return t.JobState == "" && !t.Foreign }

func (r *Record) setting(t *contract.Trial) train.Setting {
	s := train.Setting{Job: t.Job, Experiment: train.JobID(r.ID), Generation: uint64(len(t.Settings)), Values: t.Setting()}
	if t.Epochs < r.Experiment.Search.MaxEpochs {
		s.PauseAfter = t.Epochs
	}
	if s.Wants(train.SettingMicroBatch) {
		s.BatchSize = r.experiment().TrialJob(t.ID, t.Epochs, t.Params, t.Setting()).BatchSize
	}
	for _, f := range r.Experiment.System {
		if f.AtStart {
			s.AtStart = append(s.AtStart, f.Name)
		}
	}
	s.BatchDevices = r.experiment().BatchDevices()
	return s
}

// Submissions returns the jobs of all trials that may not have been submitted yet: no fact about them has arrived. They
// include those of trials stopped meanwhile: only a submitted job can be cancelled, and it may have been submitted.
func (r *Record) Submissions() []event.Fact {
	var facts []event.Fact
	for i := range r.Trials {
		t := &r.Trials[i]
		if !t.Ran() && ownsJob(t) {
			spec := r.experiment().TrialJob(t.ID, t.Epochs, t.Params, t.Setting())
			facts = append(facts, event.OnceFact(t.Job, event.FactSubmitted, "submitted", event.Submitted{Spec: spec}))
		}
	}
	return facts
}

// Cancellations returns the requests that end the jobs of stopped trials.
func (r *Record) Cancellations() []event.Fact {
	var facts []event.Fact
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.State == search.Stopped && ownsJob(t) {
			body := event.CancelRequested{By: "experiment " + r.ID, Reason: t.Reason}
			facts = append(facts, event.JobFact(t.Job, event.FactCancelRequested, "cancel", body))
		}
	}
	return facts
}

// Unpublished returns the facts still to be published and marks them as published: the caller stores the marks once the
// facts are stored.
func (r *Record) Unpublished() []event.Fact {
	var facts []event.Fact
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.PublishedStart < t.Epochs {
			t.PublishedStart = t.Epochs
			facts = append(facts,
				event.TuneFact(r.ID, event.FactTrialStarted, fmt.Sprintf("trial/%d/started/%d", t.ID, t.Epochs), r.trialStarted(t)))
		}
		if end := fmt.Sprintf("%s/%d", t.State, t.Epochs); t.State != search.Running && t.PublishedEnd != end {
			t.PublishedEnd = end
			facts = append(facts,
				event.TuneFact(r.ID, event.FactTrialEnded, fmt.Sprintf("trial/%d/%s", t.ID, end), r.trialEnded(t)))
		}
	}
	if r.Over() && !r.Published {
		r.Published = true
		name := event.FactFinished
		if r.State == Stopped {
			name = event.FactStopped
		}
		facts = append(facts, event.TuneOnceFact(r.ID, name, r.ended()))
	}
	return facts
}

func (r *Record) trialStarted(t *contract.Trial) event.TrialStarted {
	params := map[string]any{}
	for name, v := range t.Params {
		params[name] = v
	}
	return event.TrialStarted{Trial: t.ID, Job: t.Job, Params: params, Epochs: t.Epochs, Setting: t.Setting()}
}

func (r *Record) trialEnded(t *contract.Trial) event.TrialEnded {
	record := (*contract.ExperimentRecord)(r)
	body := event.TrialEnded{
		Trial: t.ID, Job: t.Job, State: string(t.State), Reason: record.Explain(t), EpochsDone: t.EpochsDone(), Seconds: t.Seconds(), EnergyJoules: t.Spent(),
	}
	if newest := record.Newest(t); newest != nil {
		body.Score = new(r.Own(newest.Value))
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
