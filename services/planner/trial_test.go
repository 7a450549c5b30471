package planner

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// The next plan with one more job says when that job starts, behind whom, and whose devices it waits for.
func TestAJobIsTried(t *testing.T) {
	b := newBench(t)
	known := newCache()
	clear(known.missing)
	now := time.Now()
	known.observeNode(now, bus.Entry[train.Node]{Key: "n", Value: train.Node{
		ID: "n", JobAPI: "x", SeenAt: now, Cores: 1, Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}},
	}}, false)
	policy, err := plan.Find("fifo")
	if err != nil {
		t.Fatal(err)
	}
	q := &questions{bus: b.bus, log: slog.New(slog.DiscardHandler), cache: known, policy: policy, now: time.Now, timeout: time.Minute}
	try := func(priority int) whatif.Trial {
		t.Helper()
		spec := train.Spec{Name: "tried", Priority: &priority}.WithDefaults()
		answer, err := q.answer(b.ctx, whatif.Question{Job: &train.Job{ID: "tried", Spec: spec, State: train.StateQueued, SubmittedAt: time.Now()}})
		if err != nil || answer.Trial == nil {
			t.Fatalf("answer %+v, error %v", answer, err)
		}
		return *answer.Trial
	}
	if got := try(50); got.Allocation == nil || got.Allocation.Node != "n" || got.PowerWatts <= 0 || got.Waiting != nil {
		t.Errorf("on a free node: %+v", got)
	}
	job := func(id train.JobID, state train.State) {
		known.observeJob(bus.Entry[*train.Job]{Key: string(id), Value: &train.Job{ID: id, Spec: train.Spec{Name: string(id)}.WithDefaults(), State: state, SubmittedAt: now}}, false)
	}
	job("runs", train.StateRunning)
	job("waits", train.StateQueued)
	known.observeAttempt(bus.Entry[train.Attempt]{Key: "runs", Value: train.Attempt{
		Job: "runs", Number: 1, Node: "n", Devices: []train.DeviceID{"cpu:0"}, Phase: train.PhaseRunning, StartedAt: now,
	}}, false)
	if _, err := b.bus.PublishAfter(b.ctx, event.Fact{
		Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/1", Source: "planner",
		Body: event.PlanDecided{Plan: train.Plan{Generation: 1, Policy: "fifo", Allocations: []train.Allocation{{Job: "runs", Node: "n", Devices: []train.DeviceID{"cpu:0"}}}}},
	}, 0); err != nil {
		t.Fatal(err)
	}
	got := try(50)
	if got.Waiting == nil || len(got.Waiting.Blockers) == 0 || got.Allocation != nil {
		t.Fatalf("behind others: %+v", got)
	}
	if diff := cmp.Diff([]train.JobID{"waits"}, got.Before); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]train.JobID{"runs"}, got.Holders); diff != "" {
		t.Error(diff)
	}
	if len(known.jobs) != 2 {
		t.Errorf("the planner knows %d jobs after the trial", len(known.jobs))
	}
}

func TestATrialNamesWhoMoves(t *testing.T) {
	on := func(job train.JobID, device train.DeviceID) train.Allocation {
		return train.Allocation{Job: job, Node: "n", Devices: []train.DeviceID{device}}
	}
	last := train.Plan{Allocations: []train.Allocation{on("moves", "gpu:0"), on("leaves", "gpu:1"), on("stays", "gpu:2")}}
	next := train.Plan{
		Allocations: []train.Allocation{on("moves", "gpu:1"), on("stays", "gpu:2"), on("starts", "gpu:3"), on("tried", "gpu:0")},
		Waiting:     []train.Waiting{{Job: "leaves", Blockers: []train.Reason{{Code: "Preempted"}}}},
	}
	got := whatif.NewTrial(last, next, "tried")
	want := []whatif.Move{{Job: "moves", Places: on("moves", "gpu:1").Places()}, {Job: "leaves", Reason: train.Reason{Code: "Preempted"}}}
	if diff := cmp.Diff(want, got.Moved); diff != "" || got.Allocation == nil || len(got.Starts) != 1 || got.Starts[0] != "starts" {
		t.Errorf("%+v\n%s", got, diff)
	}
}
