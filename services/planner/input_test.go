package planner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

func TestEveryPublishedPlanFollowsFromItsRecordedInput(t *testing.T) {
	b := newBench(t)
	b.node(3)
	b.serve()
	models := openKV(b, contract.Models)
	attempts := openKV(b, contract.Attempts)
	put(b, b.jobs, "j", admitted("j", 1))
	b.await(event.StreamDecisions, key("plan/1/input/1"))
	put(b, attempts, "j", train.Attempt{Job: "j", Number: 1, Node: "a", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseRunning, StartedAt: time.Now().Add(-time.Minute)})
	put(b, models, "j", train.Model{Job: "j", EpochSeconds: 1.0 / 3, EpochConfig: train.Config{Workers: 1, Nodes: 1, LocalBatch: 32}, EpochsSeen: 1})
	put(b, b.jobs, "second", admitted("second", 2))
	b.await(event.StreamDecisions, key("plan/2/input/1"))
	put(b, b.jobs, "third", admitted("third", 3))
	b.await(event.StreamDecisions, key("plan/3/input/1"))

	var generations []uint64
	err := decision.ReadInputs(b.ctx, b.bus, time.Time{}, func(in decision.Input, err error) {
		if err != nil {
			t.Fatal(err)
		}
		generations = append(generations, in.Generation)
		policy, err := plan.Find(in.Policy)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decision.EncodePlan(in.Decide(policy))
		if err != nil {
			t.Fatal(err)
		}
		published, err := decision.PublishedPlan(b.ctx, b.bus, in)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, published) {
			t.Errorf("generation %d: decided again\n%s\npublished\n%s", in.Generation, again, published)
		}
		// The comparison can fail: on another input the plan is another one.
		in.State.Jobs = in.State.Jobs[:len(in.State.Jobs)-1]
		if other, err := decision.EncodePlan(in.Decide(policy)); err != nil || bytes.Equal(other, published) {
			t.Errorf("generation %d: the plan does not depend on the jobs (error %v)", in.Generation, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(generations) != "[1 2 3]" {
		t.Errorf("recorded generations %v", generations)
	}
	newest, err := decision.ReadInput(b.ctx, b.bus, 0)
	if err != nil || newest.Generation != 3 || len(newest.State.Jobs) != 3 {
		t.Errorf("the newest is generation %d of %d jobs: %v", newest.Generation, len(newest.State.Jobs), err)
	}
	if second, err := decision.ReadInput(b.ctx, b.bus, 2); err != nil || len(second.State.Jobs) != 2 {
		t.Errorf("generation 2 has %d jobs: %v", len(second.State.Jobs), err)
	}
	if _, err := decision.ReadInput(b.ctx, b.bus, 17); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("generation 17: %v, want ErrNotFound", err)
	}
}

func TestPlansAreMadeWhereInputsCannotBeRecorded(t *testing.T) {
	b := newBench(t)
	b.node(1)
	b.serve()
	put(b, b.jobs, "j", admitted("j", 1))
	b.await(event.StreamDecisions, key("plan/1/input/1"))
	raw, err := nats.Connect(b.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	js, err := jetstream.New(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(b.ctx, event.StreamDecisions); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * recordsWaiting {
		id := train.JobID(fmt.Sprintf("more-%d", i))
		put(b, b.jobs, string(id), admitted(id, 1))
		b.await(event.StreamPlans, key(fmt.Sprintf("plan/%d", i+2)))
	}
}

func TestRecordingDoesNotWait(t *testing.T) {
	b := newBench(t)
	l := newLoop(t, b, "planner")
	for i := range recordsWaiting + 3 { // nobody takes them
		l.recorder.record(decision.Input{Version: decision.InputVersion, Generation: uint64(i + 1)})
	}
	if lost := testutil.ToFloat64(l.meters.unrecorded); lost != 3 {
		t.Errorf("%v inputs are counted as lost, want 3", lost)
	}
	// What waits when the planner ends is stored.
	ended, end := context.WithCancel(b.ctx)
	end()
	if err := l.recorder.run(ended); err != nil {
		t.Fatal(err)
	}
	newest, err := decision.ReadInput(b.ctx, b.bus, 0)
	if err != nil || newest.Generation != recordsWaiting {
		t.Errorf("the newest is generation %d: %v", newest.Generation, err)
	}
}

// noisy is a state that does not compress well.
func noisy(jobs int) plan.State {
	random := rand.New(rand.NewPCG(1, 2))
	s := plan.State{Now: time.Unix(1_000_000, 12345)}
	for n := range 4 {
		node := train.Node{ID: train.NodeID(fmt.Sprintf("n%d", n)), SeenAt: s.Now}
		for d := range 4 {
			node.Devices = append(node.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU})
		}
		s.Nodes = append(s.Nodes, node)
	}
	for i := range jobs {
		j := admitted(train.JobID(fmt.Sprintf("%016x", random.Uint64())), 1)
		j.Spec.MaxDevices, j.Spec.MaxEpochs = 1+i%4, 30
		one := plan.Job{ID: j.ID, Spec: j.Spec, SubmittedAt: s.Now.Add(-time.Duration(random.Int64N(1e12))), EpochsDone: i % 20, RunSeconds: random.Float64() * 1000}
		one.Model = &train.Model{Job: string(j.ID), EpochSeconds: random.Float64() * 100, EpochConfig: train.Config{Workers: 1, Nodes: 1, LocalBatch: 32}, EpochsSeen: 5}
		if i < 8 {
			h := plan.Holding{Node: s.Nodes[i/4].ID, Devices: []train.DeviceID{s.Nodes[0].Devices[i%4].ID}}
			one.Planned, one.Running = &h, &plan.Running{Holding: h, Seconds: 100, Epochs: 3, Spoke: true}
		}
		s.Jobs = append(s.Jobs, one)
	}
	return s
}

func TestALargeInputIsStoredInParts(t *testing.T) {
	in := decision.Input{Version: decision.InputVersion, Generation: 5, DecidedAt: time.Unix(77, 0).UTC(), Policy: "fifo", State: noisy(4000)}
	facts, err := in.Facts()
	if err != nil {
		t.Fatal(err)
	}
	if len(facts) < 2 {
		t.Fatalf("%d parts", len(facts))
	}
	var parts []event.DecisionRecorded
	for _, f := range facts {
		data, err := f.Encode()
		if err != nil {
			t.Fatal(err)
		}
		part, err := event.Decode[event.DecisionRecorded](data)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part)
	}
	back, err := decision.Unpack(parts)
	if err != nil {
		t.Fatal(err)
	}
	want, got := encoded(t, in), encoded(t, back)
	if !bytes.Equal(want, got) {
		t.Error("what was unpacked is not what was packed")
	}
	if _, err := decision.Unpack(parts[1:]); err == nil {
		t.Error("the end alone is taken for the whole")
	}
	in.Version = decision.InputVersion + 1
	if _, err := decision.ParseInput(encoded(t, in)); err == nil {
		t.Error("a newer format is read")
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The input is encoded beside the loop, after the decision.
func TestDecidingChangesNothingInTheState(t *testing.T) {
	for name, policy := range plan.Policies() {
		s := noisy(60)
		before := encoded(t, s)
		if p := plan.Decide(s, policy); len(p.Allocations) == 0 {
			t.Errorf("%s gives nothing", name)
		}
		if !bytes.Equal(before, encoded(t, s)) {
			t.Errorf("%s changed the state", name)
		}
	}
}

// BenchmarkRound measures a decision until its plan is published, for several numbers of waiting jobs, with and without
// inputs being recorded beside it. Decisions are at the loop's minimum distance.
func BenchmarkRound(b *testing.B) {
	for _, jobs := range []int{100, 2000, 10000} {
		for _, record := range []bool{false, true} {
			b.Run(fmt.Sprintf("jobs=%d/recorded=%v", jobs, record), func(b *testing.B) {
				benchmarkRound(b, jobs, record)
			})
		}
	}
}

func benchmarkRound(b *testing.B, jobs int, record bool) {
	bench := newBench(b)
	l := newLoop(b, bench, "planner")
	see := func(j train.Job) { l.cache.observeJob(bus.Entry[*train.Job]{Key: string(j.ID), Value: &j}, false) }
	for i := range jobs {
		see(admitted(train.JobID(fmt.Sprintf("waiting-%05d", i)), 1))
	}
	ctx, cancel := context.WithCancel(bench.ctx)
	done := make(chan error, 1)
	go func() { done <- l.recorder.run(ctx) }()
	if err := l.load(ctx); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		see(admitted(train.JobID(fmt.Sprintf("new-%d", i)), 1))
		b.StopTimer()
		tick.Pause(ctx, gatherMore)
		b.StartTimer()
		next, state, err := l.decide(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.publish(ctx, next); err != nil {
			b.Fatal(err)
		}
		if record {
			l.recorder.record(decision.Input{Version: decision.InputVersion, Generation: next.Generation, DecidedAt: next.DecidedAt, Policy: next.Policy, PlanSequence: l.sequence, State: state})
		}
	}
	b.ReportMetric(testutil.ToFloat64(l.meters.unrecorded)/float64(b.N), "lost/op")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPackInput is what recording costs beside the loop, without the bus.
func BenchmarkPackInput(b *testing.B) {
	for _, jobs := range []int{100, 2000} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			in := decision.Input{Version: decision.InputVersion, Generation: 5, Policy: "fifo", State: noisy(jobs)}
			size := 0
			for b.Loop() {
				facts, err := in.Facts()
				if err != nil {
					b.Fatal(err)
				}
				size = 0
				for _, f := range facts {
					size += len(f.Body.(event.DecisionRecorded).Data)
				}
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

// TestSilentNodesOfOldInputs: inputs named nodes that did not report before there were exclusions, and these are read.
func TestSilentNodesOfOldInputs(t *testing.T) {
	in, err := decision.ParseInput([]byte(`{"version":3,"generation":7,"state":{"nodes":[{"id":"a","devices":[{"id":"gpu:0","kind":"gpu"}]}],"silent":["a"],"jobs":[{"id":"j"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if p := in.Decide(plan.FIFO{}); len(p.Allocations) != 0 || p.Waiting[0].Blockers[0].Code != train.NodeSilent {
		t.Errorf("%+v, want that the job waits for the silent node", p)
	}
	in.Version, in.State.Exclusions = decision.InputVersion, nil
	if p := in.Decide(plan.FIFO{}); len(p.Allocations) != 1 {
		t.Errorf("%+v, want that the job comes to the node", p)
	}
}
