package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// bench is a bus, the service, and a fake scheduler that runs every job at once, in virtual time.
type bench struct {
	t        *testing.T
	ctx      context.Context //nolint:containedctx // the deadline of one test
	server   *busserver.Server
	user     *bus.Bus
	records  *bus.KV[contract.ExperimentRecord]
	settings *bus.KV[train.Setting]
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	server := bustest.Start(t)
	b := &bench{t: t, ctx: ctx, server: server, user: bustest.Connect(t, server, "cli")}
	var err error
	if b.records, err = bus.OpenKV(ctx, b.user, contract.Experiments); err != nil {
		t.Fatal(err)
	}
	if b.settings, err = bus.OpenKV(ctx, b.user, contract.Settings); err != nil {
		t.Fatal(err)
	}
	return b
}

// serve runs the service until the returned function is called.
func (b *bench) serve() (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	common := run.Common{NATS: b.server.URL(), HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: b.t.TempDir(), Node: "n"}
	var running conc.WaitGroup
	running.Go(func() {
		if err := run.Together(ctx, common, io.Discard, func(net.Addr) {}, New()); err != nil {
			b.t.Error(err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	b.t.Cleanup(stop)
	return stop
}

// yard plays admission, planner, executor and node agent for submitted jobs: each trains as far as its setting allows.
// hold, if given, decides for each epoch whether to go on.
func (b *bench) yard(hold func(job train.JobID, epoch int) bool) {
	b.t.Helper()
	executor, agent := bustest.Connect(b.t, b.server, "executor"), bustest.Connect(b.t, b.server, "nodeagent")
	ctx, cancel := context.WithCancel(b.ctx)
	var playing conc.WaitGroup
	b.t.Cleanup(func() {
		cancel()
		playing.Wait()
	})
	submitted := event.Subject{Entity: "job", ID: "*", Fact: event.FactSubmitted, Version: 1}.String()
	playing.Go(func() {
		var jobs conc.WaitGroup
		defer jobs.Wait()
		_ = b.user.Follow(ctx, event.StreamJobs, []string{submitted}, 1, func(m bus.Message) {
			s, err := event.Decode[event.Submitted](m.Data)
			if err != nil {
				b.t.Error(err)
			}
			jobs.Go(func() { b.play(ctx, executor, agent, train.JobID(m.Parsed.ID), s.Spec, hold) })
		})
	})
}

func (b *bench) play(ctx context.Context, executor, agent *bus.Bus, job train.JobID, spec train.Spec, hold func(train.JobID, int) bool) {
	publish := func(by *bus.Bus, f event.Fact) {
		if err := by.Publish(ctx, f); err != nil && ctx.Err() == nil {
			b.t.Error(err)
		}
	}
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	started := event.JobFact(job, event.FactStarted, "attempt/1/started", event.Started{Attempt: 1})
	started.Time = now
	publish(executor, started)
	for epoch := 1; epoch <= spec.MaxEpochs; epoch++ {
		if !b.mayGoOn(ctx, job, epoch-1) || hold != nil && !hold(job, epoch) {
			publish(executor, event.OnceFact(job, event.FactCancelled, "end", event.Cancelled{Attempt: 1}))
			return
		}
		now = now.Add(10 * time.Second)
		rate := 0.0
		_ = json.Unmarshal([]byte(spec.Env[train.ParameterVariable("rate")]), &rate)
		f := event.JobFact(job, event.FactEpochEnded, "attempt/1/epoch/"+string(rune('0'+epoch)), event.EpochEnded{
			Attempt: 1, EpochsDone: epoch, EpochSeconds: 10, Devices: 1, Metrics: map[string]float64{"accuracy": rate * float64(epoch)},
		})
		f.Time = now
		publish(agent, f)
	}
	publish(executor, event.OnceFact(job, event.FactSucceeded, "end", event.Succeeded{Attempt: 1, EpochsDone: spec.MaxEpochs}))
}

// mayGoOn waits until a job with this many epochs done may train on; it returns false if the job was cancelled.
func (b *bench) mayGoOn(ctx context.Context, job train.JobID, done int) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := b.user.Last(ctx, event.StreamJobs, event.JobSubject(job, event.FactCancelRequested)); err == nil {
			return false
		}
		if s, err := b.settings.Get(ctx, string(job)); err == nil && !s.Value.Pauses(done) {
			return true
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return false
}

func (b *bench) submit(id string, e file.Experiment) {
	b.t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		b.t.Fatal(err)
	}
	f := event.TuneFact(id, event.FactSubmitted, "submitted/"+time.Now().Format(time.RFC3339Nano),
		event.ExperimentSubmitted{Experiment: data})
	if err := b.user.Publish(b.ctx, f); err != nil {
		b.t.Fatal(err)
	}
}

// await returns the record once it satisfies wanted.
func (b *bench) await(id string, wanted func(conduct.Record) bool) conduct.Record {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := b.records.Get(b.ctx, id)
		if err == nil && wanted(conduct.Record(e.Value)) {
			return conduct.Record(e.Value)
		}
		select {
		case <-b.ctx.Done():
			b.t.Fatalf("experiment %s never got there; last %+v, %v", id, e.Value, err)
		case <-tick.C:
		}
	}
}

func experiment(trials int) file.Experiment {
	return file.Experiment{
		Name: "exp", Mode: file.PipeTune, Concurrency: 2, Objective: contract.Objective{Metric: "accuracy"},
		Job:    train.Spec{Name: "exp", Command: []string{"train"}, BatchSize: 32, TrainingSetSize: 1000, MaxEpochs: 9},
		Space:  search.Space{{Name: "rate", Kind: search.Uniform, Low: 0.01, High: 0.1}},
		Search: contract.SearchConfig{Algorithm: search.ASHA, Trials: trials, MaxEpochs: 9, Seed: 1},
		System: []contract.Factor{{Name: file.Cores, Values: []float64{2, 1}}},
	}
}

func over(r conduct.Record) bool { return r.Over() && r.Published }

// A whole experiment on the real bus, with a service that is replaced repeatedly, has the same result as an undisturbed
// one; all its facts are published, once.
func TestExperimentSurvivesItsService(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.yard(nil)
	stop := b.serve()
	b.submit("exp", experiment(7))
	for trials := 1; trials < 7; trials += 2 {
		b.await("exp", func(r conduct.Record) bool { return len(r.Trials) >= trials })
		stop()
		stop = b.serve()
	}
	r := b.await("exp", over)
	if r.State != conduct.Finished || len(r.Trials) != 7 {
		t.Fatalf("%s after %d trials", r.State, len(r.Trials))
	}
	best, score, ok := r.Best()
	if rate, _ := best.Params["rate"].Float(); !ok || best.State != search.Ended || score != 9*rate {
		t.Errorf("best %+v: %g", best, score)
	}
	for i := range r.Trials {
		if n := r.Trials[i].EpochsDone(); n != 1 && n != 3 && n != 9 {
			t.Errorf("trial %d was left after %d epochs", i, n)
		}
	}
	published := map[string]int{}
	subjects := []string{"yard.tune.exp.trial_started.v1", "yard.tune.exp.trial_ended.v1", "yard.tune.exp.finished.v1"}
	if err := b.user.Stored(b.ctx, event.StreamTune, subjects, time.Time{}, func(m bus.Message) { published[m.Key]++ }); err != nil {
		t.Fatal(err)
	}
	for key, n := range published {
		if n != 1 {
			t.Errorf("%s was published %d times", key, n)
		}
	}
	if published["tune/exp/finished"] != 1 || published["tune/exp/trial/0/started/1"] != 1 {
		t.Errorf("published %v", published)
	}
}

// The report of a setting may arrive after the facts of the job have ended the experiment.
func TestASettingIsRecordedAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.serve()
	b.yard(nil)
	b.submit("exp", experiment(1))
	job := b.await("exp", func(r conduct.Record) bool { return over(r) && r.Settled() }).Trials[0].Job
	body := event.Retuned{Applied: train.Applied{Job: job, Attempt: 1, Generation: 1, Values: map[string]float64{file.Cores: 2}}}
	if err := bustest.Connect(t, b.server, "executor").Publish(b.ctx, event.TuneFact("exp", event.FactRetuned, "retuned", body)); err != nil {
		t.Fatal(err)
	}
	b.await("exp", func(r conduct.Record) bool { return len(r.Trials[0].Applied) == 1 })
}

func TestTheFirstSubmissionStands(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.serve()
	b.yard(nil)
	b.submit("exp", experiment(1))
	b.await("exp", over)
	b.submit("exp", experiment(1))
	b.submit("exp", experiment(2))
	bad := experiment(1)
	bad.Job.BatchSize, bad.Concurrency = -1, 0
	b.submit("bad", bad)
	conflicted := b.last("exp", event.FactConflicted)
	if _, err := event.Decode[event.Conflicted](conflicted.Data); err != nil {
		t.Error(err)
	}
	n := 0
	if err := b.user.Stored(b.ctx, event.StreamTune, []string{"yard.tune.exp.conflicted.v1"}, time.Time{}, func(bus.Message) { n++ }); err != nil || n != 1 {
		t.Errorf("%d conflicts, error %v: the same once more is none", n, err)
	}
	refused, err := event.Decode[event.Rejected](b.last("bad", event.FactRejected).Data)
	if err != nil || len(refused.Reasons) == 0 {
		t.Errorf("refused %+v, error %v", refused, err)
	}
}

// A service that dies between the record and its side effects leaves a stopped trial whose job was never submitted: it
// still comes to an end.
func TestAStoppedTrialThatWasNeverSubmittedSettles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := conduct.New("exp", experiment(1), "hash", time.Now().UTC())
	if err := r.Decide(profile.Store{}, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	r.Stop("stopped", r.SubmittedAt)
	if _, err := b.records.Swap(b.ctx, "exp", contract.ExperimentRecord(r), 0); err != nil {
		t.Fatal(err)
	}
	b.yard(func(train.JobID, int) bool { return false })
	b.serve()
	if r := b.await("exp", func(r conduct.Record) bool { return r.Settled() }); r.Trials[0].JobState != train.StateCancelled {
		t.Errorf("its job is %s", r.Trials[0].JobState)
	}
}

// A trial learns of the end of an attempt: it gives up the setting of that attempt.
func TestALostAttemptCostsItsSetting(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := experiment(1)
	e.Search.Algorithm = search.Random
	r := conduct.New("exp", e, "hash", time.Now().UTC())
	if err := r.Decide(profile.Store{}, r.SubmittedAt); err != nil {
		t.Fatal(err)
	}
	trial := &r.Trials[0]
	r.EpochEnded(trial.Job, event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 10}, r.SubmittedAt)
	trial.Settings, trial.SettingAfter = append(trial.Settings, contract.SettingValues{file.Cores: 1}), 1
	if _, err := b.records.Swap(b.ctx, "exp", contract.ExperimentRecord(r), 0); err != nil {
		t.Fatal(err)
	}
	b.serve()
	lost := event.AttemptLost{Attempt: 2, EpochsDone: 1, Exit: train.Exit{Signal: "SIGKILL"}}
	if err := bustest.Connect(t, b.server, "executor").Publish(b.ctx, event.JobFact(trial.Job, event.FactAttemptLost, "attempt/2/end", lost)); err != nil {
		t.Fatal(err)
	}
	r = b.await("exp", func(r conduct.Record) bool { return len(r.Trials[0].Settings) == 3 })
	if s := r.Trials[0].Setting(); s[file.Cores] != 2 || r.Trials[0].FailuresLearnt != 1 {
		t.Errorf("it goes on with %v: %+v", s, r.Trials[0])
	}
}

// Another client's job under the id of a trial's is left alone: the trial fails, and the others go on.
func TestJobsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := train.Spec{Name: "mine", Command: []string{"mine"}, BatchSize: 1, MaxEpochs: 1}
	if err := b.user.Publish(b.ctx, event.OnceFact("exp-t0", event.FactSubmitted, "submitted", event.Submitted{Spec: other})); err != nil {
		t.Fatal(err)
	}
	b.yard(nil)
	stop := b.serve()
	e := experiment(3)
	e.Search.Algorithm = search.Random
	b.submit("exp", e)
	b.await("exp", func(r conduct.Record) bool { return len(r.Trials) > 1 && r.Trials[1].JobState != "" })
	stop()
	b.serve()
	r := b.await("exp", over)
	first, second := r.Trials[0], r.Trials[1]
	if first.State != search.Failed || first.Reason != "another job had been submitted as exp-t0" || second.State != search.Ended || r.State != conduct.Finished {
		t.Errorf("%s: %s %q, then %s", r.State, first.State, first.Reason, second.State)
	}
	if len(first.Done) != 0 || !first.RunAt.IsZero() {
		t.Errorf("what the other job did counts: %+v", first)
	}
	if _, err := b.settings.Get(b.ctx, "exp-t0"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("something is wanted of the other job: %v", err)
	}
	if _, err := b.user.Last(b.ctx, event.StreamJobs, event.JobSubject("exp-t0", event.FactCancelRequested)); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("the other job was cancelled: %v", err)
	}
}

// Measurements are looked up over the time of the first setting; without any the service gives up.
func TestProfiles(t *testing.T) {
	b := newBench(t)
	c, err := newConductor(b.ctx, b.user, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().UTC()
	e := experiment(1)
	e.Search.Algorithm = search.Random
	r := conduct.New("exp", e, "hash", at)
	if err := r.Decide(profile.Store{}, at); err != nil {
		t.Fatal(err)
	}
	r.EpochEnded("exp-t0", event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 10}, at)
	for after, storeSetting := range map[time.Duration]int{profilePatience: 0, profilePatience + time.Second: 1} {
		c.now = func() time.Time { return at.Add(after) }
		if found, err := c.profilesOf(b.ctx, r); err != nil || len(found) != storeSetting {
			t.Errorf("%v after %s, error %v", found, after, err)
		}
	}
	agent := bustest.Connect(t, b.server, "nodeagent")
	for i, work := range []float64{6, 600} { // the second is of another time
		from := at.Add(time.Duration(4*i-6) * time.Second)
		m := event.Measured{From: from, To: from.Add(4 * time.Second), Users: []event.Use{{Job: "exp-t0", Component: event.ComponentCPU, Work: work}}}
		subject := event.Subject{Entity: "energy", ID: "n", Fact: event.FactMeasured, Version: 1}
		if err := agent.Publish(b.ctx, event.Fact{Subject: subject, Key: fmt.Sprintf("node/n/boot/%d", i), Body: m}); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := c.profilesOf(b.ctx, r); err != nil || found["exp-t0"].BusyCores != 1.5 {
		t.Errorf("%v, error %v", found, err)
	}
}

// Results of trials are published before they are stored, once.
func TestLearntResultsArePublishedOnce(t *testing.T) {
	b := newBench(t)
	c, err := newConductor(b.ctx, bustest.Connect(t, b.server, "experiments"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().UTC()
	e := experiment(1)
	e.Search.Algorithm, e.Profiles = search.Random, "comparison"
	r := conduct.New("exp", e, "hash", at)
	if err := r.Decide(profile.Store{}, at); err != nil {
		t.Fatal(err)
	}
	trial := &r.Trials[0]
	trial.State, trial.Done = search.Paused, []contract.TrialEpoch{{Epoch: 1, Attempt: 1, At: at, Seconds: 10}}
	trial.Applied = []train.Applied{{Job: trial.Job, Attempt: 1, Generation: 1, Values: trial.Settings[0], At: at.Add(-time.Minute)}}
	trial.Profile = &contract.TrialProfile{BusyCores: 2, Signature: contract.Signature{"busy_cores": 2}}
	for range 2 {
		if _, err := c.learn(b.ctx, &r); err != nil {
			t.Fatal(err)
		}
		trial.Learnt = 0 // as after a crash before the record was stored
	}
	published, err := event.Decode[event.Learnt](b.last("exp", event.FactLearnt).Data)
	if err != nil || len(published.Best) != 1 || published.Best[0].EpochSeconds != 10 || published.Best[0].Workloads != 1 || published.Best[0].Cluster != "kind-0" {
		t.Errorf("published %+v, error %v", published, err)
	}
	known := func() (keys []string) {
		t.Helper()
		there, err := c.profiles.List(b.ctx)
		if err = errors.Join(err, c.forgetComparisons(b.ctx)); err != nil {
			t.Fatal(err)
		}
		for _, e := range there {
			if keys = append(keys, e.Key); e.Key == "comparison" && len(e.Value.Entries) != 1 {
				t.Errorf("known: %+v", e)
			}
		}
		return keys
	}
	// The truth of a comparison is kept while one of its experiments goes on, and a day longer.
	if err := c.profiles.Put(b.ctx, contract.ProfilesKey, contract.GroundTruth{Seed: 7}); err != nil {
		t.Fatal(err)
	}
	record := contract.ExperimentRecord(r)
	for _, state := range []contract.ExperimentState{contract.ExperimentRunning, conduct.Finished} {
		record.State, record.EndedAt = state, at
		if err := c.records.Put(b.ctx, "exp", record); err != nil {
			t.Fatal(err)
		}
		if err := c.forgetComparisons(b.ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"comparison", contract.ProfilesKey}, known()); diff != "" {
			t.Errorf("%s: %s", state, diff)
		}
	}
	c.now = func() time.Time { return at.Add(comparisonKept + time.Second) }
	_ = known()
	if diff := cmp.Diff([]string{contract.ProfilesKey}, known()); diff != "" {
		t.Errorf("a day later: %s", diff)
	}
	count := 0
	subject := event.TuneSubject("exp", event.FactLearnt).String()
	if err := b.user.Stored(b.ctx, event.StreamTune, []string{subject}, time.Time{}, func(bus.Message) { count++ }); err != nil || count != 1 {
		t.Errorf("published %d times, error %v", count, err)
	}
}

// An unusable record does not keep other experiments from going on.
func TestABrokenRecordIsSetAside(t *testing.T) {
	b := newBench(t)
	e := experiment(1)
	e.System[0].Values = nil
	if _, err := b.records.Swap(b.ctx, "broken", contract.ExperimentRecord(conduct.New("broken", e, "hash", time.Now().UTC())), 0); err != nil {
		t.Fatal(err)
	}
	b.serve()
	b.yard(nil)
	b.submit("exp", experiment(1))
	if r := b.await("exp", over); r.State != conduct.Finished {
		t.Errorf("the other one: %s, %s", r.State, r.Message)
	}
}

// last waits for a fact about an experiment.
func (b *bench) last(id, fact string) bus.Message {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := b.user.Last(b.ctx, event.StreamTune, event.TuneSubject(id, fact))
		if err == nil {
			return m
		}
		select {
		case <-b.ctx.Done():
			b.t.Fatalf("no fact %s about %s: %v", fact, id, err)
		case <-tick.C:
		}
	}
}

func TestStopCancelsTrials(t *testing.T) {
	b := newBench(t)
	b.serve()
	held := make(chan struct{})
	b.yard(func(job train.JobID, epoch int) bool {
		if epoch == 2 {
			<-held
			return false
		}
		return true
	})
	e := experiment(4)
	e.Search.Algorithm = search.Random
	b.submit("exp", e)
	b.await("exp", func(r conduct.Record) bool {
		return len(r.Trials) == 2 && r.Trials[0].EpochsDone() == 1 && r.Trials[1].EpochsDone() == 1
	})
	if err := b.user.Publish(b.ctx, event.TuneFact("exp", event.FactStopRequested, "stop", event.ExperimentStopRequested{By: "ann"})); err != nil {
		t.Fatal(err)
	}
	r := b.await("exp", over)
	close(held)
	if r.State != conduct.Stopped || r.Message != "stopped by ann" {
		t.Errorf("%s, %q", r.State, r.Message)
	}
	r = b.await("exp", func(r conduct.Record) bool { return r.Trials[0].JobState != "" && r.Trials[1].JobState != "" })
	for _, trial := range r.Trials {
		if trial.State != search.Stopped || trial.JobState != train.StateCancelled {
			t.Errorf("trial %d: %s, its job %s", trial.ID, trial.State, trial.JobState)
		}
	}
}
