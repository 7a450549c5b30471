package planner

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// A question that has no answer is refused in words, and the planner goes on.
func TestQuestionsAreRefusedInWords(t *testing.T) {
	b := newBench(t)
	known := newCache()
	q := &questions{bus: b.bus, log: slog.New(slog.DiscardHandler), cache: known, now: time.Now, timeout: time.Minute}
	refused := func(asked whatif.Question, usage bool, words string) {
		t.Helper()
		answer, err := q.answer(b.ctx, asked)
		if err != nil || answer.Refusal == nil || answer.Refusal.Usage != usage || !strings.Contains(answer.Refusal.Message, words) {
			t.Errorf("answer %+v, refusal %+v, error %v; want %q", answer, answer.Refusal, err, words)
		}
	}
	refused(whatif.Question{}, false, "has not read all records yet")
	clear(known.missing)
	refused(whatif.Question{}, false, "no job is recorded")

	spec := train.Spec{Name: "x", BatchSize: 10, TrainingSetSize: 100, MaxEpochs: 1}.WithDefaults()
	say := func(seconds int64, source, fact string, body any) {
		t.Helper()
		f := event.JobFact("a", fact, fact, body)
		f.Source, f.Time = source, time.Unix(1_000_000+seconds, 0)
		if err := b.bus.Publish(b.ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	say(0, "admission", event.FactAdmitted, event.Admitted{Spec: spec})
	say(1, "executor", event.FactStarted, event.Started{Attempt: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}})
	say(11, "nodeagent", event.FactEpochEnded, event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 10, Steps: 10, Devices: 1})
	say(11, "executor", event.FactSucceeded, event.Succeeded{Attempt: 1, EpochsDone: 1})
	put(b, b.nodes, "n", train.Node{ID: "n", SeenAt: time.Now(), Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}})
	node, err := b.nodes.Get(b.ctx, "n")
	if err != nil {
		t.Fatal(err)
	}
	known.observeNode(time.Now(), node, false)
	refused(whatif.Question{}, false, "policy \"\"")
	plans := openPlan(b)
	if plans == 0 {
		t.Fatal("no plan is published")
	}
	refused(whatif.Question{Policies: []string{"best"}}, true, `--policy "best": no such policy`)
	refused(whatif.Question{Clusters: []string{"nodes=x"}}, true, "--cluster")
	answer, err := q.answer(b.ctx, whatif.Question{AddNodes: 1, Timeline: true})
	if err != nil || answer.Refusal != nil || len(answer.Rows) != 3 || answer.Rows[2].Completed != 1 || !strings.Contains(answer.Timeline, "fifo,recorded") {
		t.Errorf("%+v, %+v, error %v", answer, answer.Refusal, err)
	}
	q.timeout = time.Nanosecond
	refused(whatif.Question{AddNodes: 1}, false, "at most 1ns")
}

// openPlan publishes an empty plan of fifo.
func openPlan(b *bench) uint64 {
	b.t.Helper()
	sequence, err := b.bus.PublishAfter(b.ctx, event.Fact{
		Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/1", Source: "planner",
		Body: event.PlanDecided{Plan: train.Plan{Generation: 1, Policy: "fifo", Allocations: []train.Allocation{}}},
	}, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return sequence
}

// A record without rates, "known": null, is no knowledge: neither a decision nor a question fails on it.
func TestARecordOfInterferenceWithoutRates(t *testing.T) {
	device := train.Device{ID: "gpu:0", Kind: train.KindGPU, Model: "M", Driver: "1"}
	var met curve.InterferenceRecord
	if err := json.Unmarshal([]byte(`{"device": "M", "under": "1", "through": 7, "known": null}`), &met); err != nil {
		t.Fatal(err)
	}
	known := newCache()
	known.observeNode(time.Now(), bus.Entry[train.Node]{Key: "n", Value: train.Node{ID: "n", Devices: []train.Device{device}}}, false)
	for range 2 {
		known.observeInterference(bus.Entry[curve.InterferenceRecord]{Key: curve.InterferenceKey(&device), Value: met}, false)
		if _, _, s := known.recorded(plan.State{}); len(s.Interference) != 0 {
			t.Errorf("known is %v, want nothing", s.Interference)
		}
	}
	var recorded plan.State
	if err := json.Unmarshal([]byte(`{"interference": {"d": null}}`), &recorded); err != nil {
		t.Fatal(err)
	}
	policy, err := plan.Find("switchyard")
	if err != nil {
		t.Fatal(err)
	}
	plan.Decide(recorded, policy)
	if _, err := sim.Run(sim.Config{State: recorded, Policy: policy, Nodes: []train.Node{{ID: "n", Devices: []train.Device{device}}}}); err != nil {
		t.Error(err)
	}
}
