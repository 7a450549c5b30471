package profiler

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// bench is a server with the test's own connection, which publishes for every service.
type bench struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // the deadline of one test
	url    string
	bus    *bus.Bus
	models *bus.KV[train.Model]
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	server := bustest.Start(t)
	b := &bench{t: t, ctx: ctx, url: server.URL(), bus: bustest.Connect(t, server, "test")}
	var err error
	if b.models, err = bus.OpenKV(ctx, b.bus, contract.Models); err != nil {
		t.Fatal(err)
	}
	return b
}

// serve runs the service until the returned function is called.
func (b *bench) serve() (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	common := run.Common{NATS: b.url, HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: b.t.TempDir(), Node: "n"}
	go func() {
		done <- run.Together(ctx, common, io.Discard, func(net.Addr) {}, New(settings.Profiler{RefitInterval: 100 * time.Millisecond}))
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) publish(id train.JobID, fact, key string, seconds float64, body any) {
	b.t.Helper()
	f := event.JobFact(id, fact, key, body)
	kind, _ := event.Find(f.Subject)
	f.Source, f.Time = kind.Publisher, after(seconds)
	if err := b.bus.Publish(b.ctx, f); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) begin(id train.JobID, s train.Spec) {
	b.publish(id, event.FactAdmitted, "admitted", 0, event.Admitted{Spec: s})
	b.publish(id, event.FactStarted, "attempt/1/started", 0, event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
}

func (b *bench) epoch(id train.JobID, n int, seconds float64) {
	b.publish(id, event.FactEpochEnded, fmt.Sprintf("attempt/1/epoch/%d", n), seconds*float64(n),
		event.EpochEnded{Attempt: 1, EpochsDone: n, EpochSeconds: seconds, Devices: 1})
}

// await waits for a model that is as wanted.
func (b *bench) await(id train.JobID, wanted func(train.Model) bool) bus.Entry[train.Model] {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var found bus.Entry[train.Model]
	_ = b.models.Watch(ctx, func(e bus.Entry[train.Model], _ bool) {
		if e.Key == string(id) && wanted(e.Value) {
			found = e
			cancel()
		}
	}, nil)
	if found.Key == "" {
		b.t.Fatalf("the model of %s never got there", id)
	}
	return found
}

// follow passes on the facts of jobs, from the first to the one that is the last.
func (b *bench) follow(filter string, last func(bus.Message) bool) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	done := false
	_ = b.bus.Follow(ctx, event.StreamJobs, []string{filter}, 1, func(m bus.Message) {
		if !done && last(m) {
			done = true
			cancel()
		}
	})
}

// count returns how often a fact is on the bus now: everything before a marker that is published for it.
func (b *bench) count(fact string) int {
	b.t.Helper()
	b.publish("mark", event.FactCheckpointWritten, "attempt/1/checkpoint/1", 0, event.CheckpointWritten{Attempt: 1, EpochsDone: 1})
	n := 0
	b.follow("yard.job.>", func(m bus.Message) bool {
		if m.Parsed.Fact == fact {
			n++
		}
		return m.Parsed.ID == "mark"
	})
	return n
}

// estimates returns the first n published estimates.
func (b *bench) estimates(n int) []event.Reestimated {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var published []event.Reestimated
	_ = b.bus.Follow(ctx, event.StreamJobs, []string{"yard.job.*.reestimated.v1"}, 1, func(m bus.Message) {
		r, err := event.Decode[event.Reestimated](m.Data)
		if err != nil {
			b.t.Error(err)
		}
		if published = append(published, r); len(published) == n {
			cancel()
		}
	})
	if len(published) < n {
		b.t.Fatalf("%d estimates, want %d", len(published), n)
	}
	return published
}

func seen(epochs int) func(train.Model) bool {
	return func(m train.Model) bool { return m.EpochsSeen == epochs }
}

func TestTheProfilerLearnsAndPublishes(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.begin("a", spec())
	b.epoch("a", 1, 20)
	if e := b.await("a", seen(1)); e.Value.EpochSeconds != 20 || !e.Value.Speed.Known() {
		t.Fatalf("model %+v", e.Value)
	}
	first := b.estimates(1)[0]
	if first.TotalSeconds != 200 || first.RemainingSeconds != 180 || first.EpochsDone != 1 {
		t.Fatalf("estimate %+v", first)
	}
	// As predicted, so nothing is published. Then the job gets slower.
	b.epoch("a", 2, 20)
	b.await("a", seen(2))
	for n := 3; n <= 5; n++ {
		b.publish("a", event.FactEpochEnded, fmt.Sprintf("attempt/1/epoch/%d", n), 40+30*float64(n-2), event.EpochEnded{Attempt: 1, EpochsDone: n, EpochSeconds: 30, Devices: 1})
		b.await("a", seen(n))
	}
	published := b.estimates(2)
	if published[1].EpochsDone < 3 || published[1].TotalSeconds <= published[0].TotalSeconds {
		t.Fatalf("estimates %+v", published)
	}
}

func TestHeartbeatsAreFittedAtIntervals(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.begin("a", spec())
	b.epoch("a", 1, 20)
	b.await("a", seen(1)) // by now the start of the attempt is known
	f := event.Fact{
		Subject: event.Subject{Entity: "sample", ID: "a", Fact: event.FactStepped, Version: 1}, Key: "job/a/attempt/1/step/110/0", Source: "nodeagent",
		Body: event.Stepped{Job: "a", Attempt: 1, Step: 110, Steps: 10, StepSeconds: 0.25, Devices: 2},
	}
	if err := b.bus.Publish(b.ctx, f); err != nil {
		t.Fatal(err)
	}
	b.await("a", func(m train.Model) bool {
		_, measured := m.Speed.Observed(train.Config{Workers: 2, Nodes: 1, LocalBatch: 10})
		return measured
	})
}

func TestARestartPublishesNothingTwice(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	b.begin("a", spec())
	b.epoch("a", 1, 20)
	b.epoch("a", 2, 20)
	before := b.await("a", seen(2))
	b.estimates(1)
	b.begin("gone", spec())
	b.epoch("gone", 1, 5)
	b.await("gone", seen(1))
	b.estimates(2)
	b.publish("gone", event.FactSucceeded, "end", 50, event.Succeeded{Attempt: 1, EpochsDone: 10})
	stop()
	// While the service is away one job starts, and another one goes on.
	b.begin("new", spec())
	b.epoch("new", 1, 7)
	b.serve()
	b.await("new", seen(1))
	b.estimates(3)
	b.epoch("a", 3, 20)
	b.await("a", seen(3))
	b.epoch("new", 2, 14)
	b.await("new", seen(2))
	// The third epoch of a is as published before the restart; the second one of new took twice as long as the first.
	if r := b.estimates(4)[3]; r.TotalSeconds != 84 {
		t.Fatalf("published again: %+v", r)
	}
	if before.Value.EpochSeconds != 20 {
		t.Fatalf("model %+v", before.Value)
	}
}

func TestThePastEndsWithItsNewestFact(t *testing.T) {
	b := newBench(t)
	st := &store{bus: b.bus, models: b.models}
	if last, err := st.newest(b.ctx); err != nil || last != 0 {
		t.Fatalf("newest of nothing: %d, %v", last, err)
	}
	b.begin("a", spec())
	b.epoch("a", 1, 20)
	b.publish("a", event.FactCheckpointWritten, "attempt/1/checkpoint/1", 21, event.CheckpointWritten{Attempt: 1, EpochsDone: 1})
	if last, err := st.newest(b.ctx); err != nil || last != 3 {
		t.Fatalf("newest: %d, %v; want the epoch's 3", last, err)
	}
}

func TestAnUnchangedModelIsNotWritten(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	b.begin("a", spec())
	b.epoch("a", 1, 20)
	before := b.await("a", seen(1))
	b.estimates(1)
	stop()
	b.serve()
	b.begin("z", spec())
	b.epoch("z", 1, 20)
	b.await("z", seen(1)) // jobs are stored in the order of their ids, so a was looked at
	requeue, err := b.models.Get(b.ctx, "a")
	if err != nil || requeue.Revision != before.Revision {
		t.Fatalf("revision %d after %d, error %v", requeue.Revision, before.Revision, err)
	}
}

func TestTheLastEpochOfAJobCounts(t *testing.T) {
	l := newEstimator()
	l.present = true
	feed(t, l, event.JobFact("a", event.FactAdmitted, "admitted", event.Admitted{Spec: spec()}))
	feed(t, l, event.JobFact("a", event.FactEpochEnded, "e", event.EpochEnded{EpochsDone: 1, EpochSeconds: 3, Devices: 1}))
	feed(t, l, event.OnceFact("a", event.FactSucceeded, "end", event.Succeeded{EpochsDone: 1}))
	out, known := l.update("a")
	if !known || out.model.EpochsSeen != 1 || out.estimate != nil || l.size() != 0 {
		t.Fatalf("update %+v of %d jobs", out, l.size())
	}
	if _, known := l.update("a"); known {
		t.Fatal("a job that has ended is still known")
	}
	// In the past, an ended job is forgotten at once.
	l.present = false
	feed(t, l, event.JobFact("b", event.FactAdmitted, "admitted", event.Admitted{Spec: spec()}))
	feed(t, l, event.JobFact("b", event.FactEpochEnded, "e", event.EpochEnded{EpochsDone: 1, EpochSeconds: 3, Devices: 1}))
	feed(t, l, event.OnceFact("b", event.FactSucceeded, "end", event.Succeeded{EpochsDone: 1}))
	if l.size() != 0 || len(l.due(true)) != 0 {
		t.Fatal("an old job is kept")
	}
}

// TestAResumedJobIsKnown: a job that failed keeps its model, because it may be resumed; of many the newest stay.
func TestAResumedJobIsKnown(t *testing.T) {
	l := newEstimator()
	for i := range mostStopped + 5 {
		id := train.JobID(fmt.Sprintf("j%d", i))
		feed(t, l, event.JobFact(id, event.FactAdmitted, "admitted", event.Admitted{Spec: spec()}))
		feed(t, l, event.JobFact(id, event.FactEpochEnded, "e", event.EpochEnded{EpochsDone: 1, EpochSeconds: 3, Devices: 1}))
		feed(t, l, event.OnceFact(id, event.FactFailed, "end", event.Failed{}))
	}
	if l.size() != mostStopped || len(l.due(true)) != 0 {
		t.Fatalf("%d jobs, want the newest %d, and nothing to write", l.size(), mostStopped)
	}
	last := train.JobID(fmt.Sprintf("j%d", mostStopped+4))
	feed(t, l, event.JobFact(last, event.FactStarted, "attempt/2/started", event.Started{Attempt: 2, Node: "n", Devices: []train.DeviceID{"cpu:0"}, EpochsDone: 1}))
	feed(t, l, event.JobFact(last, event.FactEpochEnded, "e2", event.EpochEnded{Attempt: 2, EpochsDone: 2, EpochSeconds: 3, Devices: 1}))
	if due := l.due(true); len(due) != 1 {
		t.Fatalf("%v are due, want %s", due, last)
	}
	if out, known := l.update(last); !known || out.model.EpochsSeen != 2 {
		t.Errorf("known %t, %+v", known, out.model)
	}
}

func feed(t *testing.T, l *estimator, f event.Fact) {
	t.Helper()
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	kind, _ := event.Find(f.Subject)
	if err := l.fact(bus.Message{Subject: f.Subject.String(), Parsed: f.Subject, Time: nine(), Data: data, Source: kind.Publisher}); err != nil {
		t.Fatal(err)
	}
}

func TestTheEstimatorIgnoresOtherPublishers(t *testing.T) {
	l := newEstimator()
	m := bus.Message{Subject: "yard.job.a.started.v1", Parsed: event.JobSubject("a", event.FactStarted), Data: []byte(`{}`), Source: "energy"}
	if err := l.fact(m); err == nil {
		t.Error("a start by another service was believed")
	}
	m.Source, m.Data = "", []byte(`{"attempt":1}`)
	if err := l.fact(m); err == nil {
		t.Error("a start without a publisher was believed")
	}
	m.Source, m.Data = "executor", []byte(`{"attempt":"x"}`)
	if err := l.fact(m); err == nil {
		t.Error("a body of another shape was believed")
	}
	m.Data = []byte(`{"attempt":1}`)
	if err := l.fact(m); err != nil || l.size() != 0 {
		t.Errorf("a job that was never admitted: %d jobs, %v", l.size(), err)
	}
	if err := l.sample(bus.Message{Parsed: event.Subject{ID: "a"}, Data: []byte(`{`)}); err == nil {
		t.Error("a broken heartbeat was believed")
	}
}

func nine() time.Time { return time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC) }

func spec() train.Spec {
	return train.Spec{Name: "n", BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 10, MaxDevices: 2}.WithDefaults()
}

func after(seconds float64) time.Time {
	return nine().Add(time.Duration(seconds * float64(time.Second)))
}

// Five jobs of a sweep are queued together. The first one's epochs teach the four that wait.
func TestJobsThatWaitAreTaught(t *testing.T) {
	b := newBench(t)
	b.serve()
	of := func(rate string) train.Spec {
		s := spec()
		s.Command = []string{"python3", "train.py", "--lr", rate}
		return s
	}
	for _, id := range []train.JobID{"w2", "w3", "w4", "w5"} {
		b.publish(id, event.FactAdmitted, "admitted", 0, event.Admitted{Spec: of("0." + string(id[1:]))})
	}
	b.begin("w1", of("0.1"))
	b.epoch("w1", 1, 20)
	for _, id := range []train.JobID{"w2", "w3", "w4", "w5"} {
		b.await(id, func(m train.Model) bool { return m.Speed.Known() && m.EpochsSeen == 0 })
	}
	b.publish("w1", event.FactSucceeded, "succeeded", 60, event.Succeeded{Attempt: 1, EpochsDone: 10})
	for _, id := range []train.JobID{"w2", "w3", "w4", "w5"} {
		b.await(id, func(m train.Model) bool { return m.Kin != nil && m.Kin.Jobs == 1 })
	}
}
