package conduct

import (
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Seen reports whether a message was entered before, and records that it is now.
func (r *Record) Seen(stream string, sequence uint64) bool {
	if sequence <= r.Folded[stream] {
		return true
	}
	if r.Folded == nil {
		r.Folded = map[string]uint64{}
	}
	r.Folded[stream] = sequence
	return false
}

// Started records that processes of a trial's job run.
func (r *Record) Started(job train.JobID, at time.Time) {
	if t := r.trial(job); t != nil && t.RunAt.IsZero() {
		t.RunAt = at
	}
}

// EpochEnded records the end of an epoch. An epoch trained again after a loss replaces the lost one, and all after it.
// What the lost attempt reports later does not count.
func (r *Record) EpochEnded(job train.JobID, e event.EpochEnded, at time.Time) {
	t := r.trial(job)
	if t == nil || t.JobState != "" && e.EpochsDone <= t.EpochsDone() {
		return
	}
	if n := len(t.Done); n > 0 && e.Attempt < t.Done[n-1].Attempt {
		return
	}
	done := contract.TrialEpoch{Epoch: e.EpochsDone, Attempt: e.Attempt, At: at, Seconds: e.EpochSeconds, Devices: e.Devices, Metrics: r.compared(e)}
	if i := slices.IndexFunc(t.Done, func(d contract.TrialEpoch) bool { return d.Epoch >= done.Epoch }); i >= 0 {
		if t.Done[i].Attempt == done.Attempt && t.Done[i].Epoch == done.Epoch {
			return
		}
		t.Done = t.Done[:i]
	}
	// Where progress is read from a program's output, nobody knows when the first epoch began. An objective that is
	// divided by the time needs one.
	if done.Seconds == 0 && len(t.Done) == 0 && !t.RunAt.IsZero() {
		done.Seconds = max(at.Sub(t.RunAt).Seconds(), 0)
	}
	t.Done = append(t.Done, done)
	t.Learnt, t.SettingAfter = min(t.Learnt, len(t.Done)-1), min(t.SettingAfter, len(t.Done)-1)
	r.settle(t, at)
}

// compared returns the metrics named by the objective and the constraints, and which of them are no number: a record
// has no room for all reported metrics.
func (r *Record) compared(e event.EpochEnded) map[string]float64 {
	named, names := map[string]float64{}, r.Experiment.Metrics()
	for _, name := range r.Experiment.Metrics() {
		names = append(names, train.Nonfinite+name)
	}
	for _, name := range append(names, contract.NonfiniteSteps) {
		if x, reported := e.Metrics[name]; reported {
			named[name] = x
		}
		if name == "loss" && e.Loss != nil {
			named[name] = *e.Loss
		}
	}
	return named
}

// settle pauses a trial that has reached its target epoch, or ends it with its job.
func (r *Record) settle(t *contract.Trial, at time.Time) {
	if t.State != search.Running && t.State != search.Paused || !r.valued(t, at) {
		return
	}
	switch {
	case t.JobState == "":
		if whole := t.Epochs >= r.Experiment.Search.MaxEpochs; t.State == search.Running && !whole && t.EpochsDone() >= t.Epochs {
			t.State, t.EndedAt, t.Done[len(t.Done)-1].Paused = search.Paused, at, true
		}
		return
	case t.JobState == train.StateSucceeded:
		t.State = search.Ended
	case t.JobState == train.StateCancelled && len(t.Done) > 0:
		t.State, t.Reason = search.Stopped, "its job was cancelled"
	default:
		t.State = search.Failed
	}
	t.EndedAt = at
}

// energyPatience is how long to wait for the energy of a trial after its last epoch.
const energyPatience = time.Minute

// valued reports whether the last epoch has a result, or never will: the energy arrives some seconds after the epoch.
func (r *Record) valued(t *contract.Trial, now time.Time) bool {
	return r.Experiment.Objective.Per != contract.PerEnergy || len(t.Done) == 0 || t.Joules() > 0 || t.Closed ||
		now.Sub(t.Done[len(t.Done)-1].At) > energyPatience
}

// JobEnded records how the job of a trial ended.
func (r *Record) JobEnded(job train.JobID, state train.State, reason string, at time.Time) {
	t := r.trial(job)
	if t == nil || t.JobState != "" {
		return
	}
	t.JobState = state
	if t.State == search.Running || t.State == search.Paused {
		t.Reason = reason
	}
	r.settle(t, at)
}

// Taken records that the id of a trial's job belongs to another client's job.
func (r *Record) Taken(job train.JobID, at time.Time) {
	t := r.trial(job)
	if t == nil {
		return
	}
	t.Foreign = true
	if t.State == search.Running {
		t.State, t.EndedAt = search.Failed, at
		t.Reason = fmt.Sprintf("another job had been submitted as %s", job)
	}
}

// Retuned records what was applied to an attempt. A restarted executor determines again what an attempt has, and may
// report a part of it after the whole.
func (r *Record) Retuned(a train.Applied) {
	t := r.trial(a.Job)
	if t == nil {
		return
	}
	whole := func(b train.Applied) bool {
		return b.Attempt == a.Attempt && b.Generation == a.Generation && len(pendingNames(t, b)) == 0
	}
	if len(pendingNames(t, a)) == 0 || !slices.ContainsFunc(t.Applied, whole) {
		t.Applied = append(t.Applied, a)
	}
}

// Metered records the ledger's data on a trial's job.
func (r *Record) Metered(job train.JobID, progress train.EnergyProgress, account train.Account, now time.Time) {
	t := r.trial(job)
	if t == nil || !t.Ran() {
		return
	}
	for _, e := range progress.Epochs {
		i := slices.IndexFunc(t.Done, func(d contract.TrialEpoch) bool { return d.Epoch == e.EpochsDone && d.Attempt == e.Attempt })
		if i >= 0 {
			t.Done[i].Joules = e.Energy.Joules()
		}
	}
	last := t.EndedAt
	if n := len(t.Done); n > 0 && t.Done[n-1].At.After(last) {
		last = t.Done[n-1].At
	}
	t.SpentJoules = account.Energy.Joules()
	t.Modelled = slices.Contains(account.Methods, train.MethodModelled)
	t.Closed = t.JobState != "" && (account.Final || now.Sub(last) > energyPatience)
	r.settle(t, now)
}

// Profiled records the measured profile of a trial's job.
func (r *Record) Profiled(job train.JobID, p contract.TrialProfile) {
	if t := r.trial(job); t != nil && t.Profile == nil {
		t.Profile = &p
	}
}

// Stop ends the experiment early.
func (r *Record) Stop(message string, at time.Time) {
	if r.Over() {
		return
	}
	for i := range r.Trials {
		stopTrial(&r.Trials[i], "the experiment was stopped", at)
	}
	r.State, r.Message, r.EndedAt = Stopped, message, at
}

// stopTrial ends a trial that has not ended.
func stopTrial(t *contract.Trial, reason string, at time.Time) {
	if t.State == search.Running || t.State == search.Paused {
		t.State, t.Reason, t.EndedAt = search.Stopped, reason, at
	}
}
