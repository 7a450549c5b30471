package conduct

import (
	"math"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// An epoch with a change in it says nothing about a setting, but still costs: if changes are slow the rule has less to
// lose, and tries less.
func TestEpochsWithChangesArePaidFor(t *testing.T) {
	for _, latency := range []time.Duration{50 * time.Millisecond, 3 * time.Second} {
		e := experiment(search.Random, file.PipeTune, 1)
		e.Job.MaxEpochs, e.Search.MaxEpochs = 40, 40
		e.System = []contract.Factor{{Name: file.Cores, Values: []float64{8, 4, 2, 1}}, {Name: file.PowerLimit, Values: []float64{250, 200, 150, 100}}}
		w := newWorld(t, e)
		w.latency, w.cost = latency, func(_, cores float64) float64 { return 20 * math.Pow(8/cores, 0.2) }
		w.run()
		trial := &w.record.Trials[0]
		seen := w.record.pipelined(trial, profile.Store{})
		spent := seen.Changed
		for _, epoch := range seen.Ended {
			spent += epoch.Cost
		}
		if math.Abs(spent-trial.Seconds()) > 1e-6 {
			t.Errorf("with a latency of %s the rule sees %g s of %g", latency, spent, trial.Seconds())
		}
		if most := 1.03 * 40 * 20; len(trial.Settings) < 2 || trial.Seconds() > most {
			t.Errorf("with a latency of %s: %g s with %d settings, want some and at most %g s", latency,
				trial.Seconds(), len(trial.Settings), most)
		}
	}
}

// The measurements of a trial's first epoch arrive shortly after it: for a new workload the decision waits for them a
// while, for a known one it does not.
func TestTheFirstDecisionWaitsForTheProfile(t *testing.T) {
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	ended := began.Add(10 * time.Second)
	profiled := func(r *Record) { r.Profiled("exp-t0", contract.TrialProfile{BusyCores: 0.1}) }
	for _, test := range []struct {
		name     string
		mode     contract.ExperimentMode
		known    bool
		reported func(*Record)
		after    time.Duration
		settings int
		waits    bool
	}{
		{"nothing is reported yet", file.PipeTune, false, nil, measurementPatience, 1, true},
		{"a profile is reported", file.PipeTune, false, profiled, time.Second, 2, false},
		{"nothing is reported in time", file.PipeTune, false, nil, measurementPatience + 1, 1, false},
		{"the workload is known", file.PipeTune, true, nil, 0, 1, false},
		{"system parameters are left alone", file.V1, false, nil, 0, 1, false},
	} {
		e := experiment(search.Random, test.mode, 1)
		e.Job.BatchSize = 1024 // with it fewer cores are a risk
		r := New("exp", e, "", began)
		known := profile.Store{}
		decide := func(after time.Duration) {
			t.Helper()
			if err := r.Decide(known, ended.Add(after)); err != nil {
				t.Fatal(err)
			}
		}
		decide(-10 * time.Second)
		r.Retuned(train.Applied{Job: "exp-t0", Attempt: 1, Generation: 1, Values: r.Trials[0].Settings[0], At: began})
		r.EpochEnded("exp-t0", event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 10}, ended)
		if test.known {
			trial := r.pipelined(&r.Trials[0], known)
			known = known.Learn(&trial, nil)
		}
		decide(0)
		if test.reported != nil {
			test.reported(&r)
		}
		decide(test.after)
		if got := r.Trials[0].Settings; len(got) != test.settings || r.Undecided() != test.waits {
			t.Errorf("%s: waits %t, settings %v", test.name, r.Undecided(), got)
		}
	}
}

// After a crash a lost epoch is trained again, and decided on again.
func TestLostEpochsAreDecidedOnAgain(t *testing.T) {
	r := New("exp", experiment(search.Random, file.PipeTune, 1), "", time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	ends := func(attempt, epoch int) {
		t.Helper()
		at := r.SubmittedAt.Add(time.Duration(10*(6*(attempt-1)+epoch)) * time.Second)
		r.EpochEnded("exp-t0", event.EpochEnded{Attempt: attempt, EpochsDone: epoch, EpochSeconds: 10}, at)
		if err := r.Decide(profile.Store{}, at.Add(2*measurementPatience)); err != nil {
			t.Fatal(err)
		}
		if r.Trials[0].SettingAfter != epoch {
			t.Errorf("attempt %d: the newest decision is that after %d epochs, want %d", attempt, r.Trials[0].SettingAfter, epoch)
		}
	}
	if err := r.Decide(profile.Store{}, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	for epoch := range 6 {
		ends(1, epoch+1)
	}
	ends(2, 4)
	ends(2, 5)
}

// An epoch of an attempt that was lost may be reported after a later attempt began again. It is no result of the trial.
func TestAnEpochOfALostAttemptComesLate(t *testing.T) {
	r := New("exp", experiment(search.Random, file.PipeTune, 1), "", time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	if err := r.Decide(profile.Store{}, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	for i, e := range []struct{ attempt, epoch int }{{1, 1}, {1, 2}, {2, 1}, {1, 3}} {
		r.EpochEnded("exp-t0", event.EpochEnded{Attempt: e.attempt, EpochsDone: e.epoch, EpochSeconds: 10}, r.SubmittedAt.Add(time.Duration(10*i)*time.Second))
	}
	if done := r.Trials[0].Done; len(done) != 1 || done[0].Attempt != 2 || done[0].Epoch != 1 {
		t.Errorf("done %+v, want epoch 1 of attempt 2", done)
	}
}

// A workload is recognised by its rates at the default: a trial that begins at the best known setting does not replace
// them.
func TestSignaturesAreTakenAtTheDefault(t *testing.T) {
	r := New("exp", experiment(search.Random, file.PipeTune, 2), "", time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	at := r.SubmittedAt.Add(time.Minute)
	trained := func(id int, cores, busy float64) contract.Trial {
		job := JobID(r.ID, id)
		return contract.Trial{
			ID: id, Job: job, Epochs: 9, State: search.Ended, Settings: []contract.SettingValues{{file.Cores: cores}}, Done: []contract.TrialEpoch{{Epoch: 1, Attempt: 1, At: at, Seconds: 10}},
			Applied: []train.Applied{{Job: job, Attempt: 1, Generation: 1, Values: map[string]float64{file.Cores: cores}, At: r.SubmittedAt}},
			Profile: &contract.TrialProfile{BusyCores: busy, Signature: contract.Signature{"busy_cores": busy}},
		}
	}
	r.Trials = []contract.Trial{trained(0, 2, 1.8), trained(1, 1, 0.9)}
	known := r.Learn(profile.Store{})
	if e := known.Entries[0]; len(e.Measured) != 2 || e.Signature["busy_cores"] != 1.8 {
		t.Errorf("measured %v with the signature %v", e.Measured, e.Signature)
	}
	first, second := r.pipelined(&r.Trials[0], known).Kind, r.pipelined(&r.Trials[1], known).Kind
	if first == "" || first != second {
		t.Errorf("kind %q at the default, %q at another setting", first, second)
	}
}

// Joules also arrive after the epoch: a disappointing probe is over after one.
func TestAProbeInJoulesTakesOneEpoch(t *testing.T) {
	for _, lag := range []time.Duration{20 * time.Millisecond, time.Second / 2} {
		e := experiment(search.Random, file.PipeTune, 1)
		e.Objective.Per, e.Job.MaxEpochs, e.Search.MaxEpochs = contract.PerEnergy, 30, 30
		w := newWorld(t, e)
		w.lag, w.busy = lag, 0.2
		w.cost = func(_, cores float64) float64 { return 20 }
		w.watts = func(cores float64) float64 { return 100 - 5*cores }
		w.run()
		trial := w.record.Trials[0]
		probes := 0
		for _, epoch := range w.record.pipelined(&trial, profile.Store{}).Ended {
			if epoch.Setting[file.Cores] == 1 {
				probes++
			}
		}
		if probes != 1 || len(trial.Settings) != 3 || trial.EpochsDone() != 30 {
			t.Errorf("reported after %s: %d epochs of %d with one core, settings %v", lag, probes, trial.EpochsDone(),
				trial.Settings)
		}
	}
}
