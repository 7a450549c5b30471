package planner

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
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
	try := func(priority int) rpc.Outlook {
		t.Helper()
		spec := train.Spec{Name: "tried", Priority: &priority}.WithDefaults()
		answer, err := q.outlooks(b.ctx, rpc.OutlookRequest{Candidate: &train.Job{ID: "tried", Spec: spec, State: train.StateQueued, SubmittedAt: time.Now()}})
		if err != nil || len(answer.Outlooks) != 1 || answer.Outlooks[0].Outlook == nil {
			t.Fatalf("answer %+v, error %v", answer, err)
		}
		return *answer.Outlooks[0].Outlook
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
	grouped := train.Spec{Name: "grouped", BatchSize: 10, TrainingSetSize: 1000, Energy: &train.EnergySpec{Group: "nightly"}}.WithDefaults()
	known.observeJob(bus.Entry[*train.Job]{Key: "grouped", Value: &train.Job{ID: "grouped", Spec: grouped, State: train.StateQueued, SubmittedAt: now}}, false)
	if answer, err := q.outlooks(b.ctx, rpc.OutlookRequest{Job: "grouped"}); err != nil || answer.Outlooks[0].Waiting == nil {
		t.Errorf("about a job whose batch is not chosen: %+v, error %v", answer, err)
	}
	known.observeJob(bus.Entry[*train.Job]{Key: "sweep", Value: &train.Job{ID: "sweep", Spec: train.Spec{Name: "sweep", Array: "3-9"}.WithDefaults(), State: train.StateQueued}}, false)
	if _, err := q.outlooks(b.ctx, rpc.OutlookRequest{Job: "sweep"}); err == nil || !strings.Contains(err.Error(), "ask about one of its jobs, such as sweep-3") {
		t.Errorf("about an array: %v", err)
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
	got := whatif.NewOutlook(last, next, "tried")
	want := []rpc.Move{{Job: "moves", Places: on("moves", "gpu:1").Places()}, {Job: "leaves", Reason: train.Reason{Code: "Preempted"}}}
	if diff := cmp.Diff(want, got.Moved); diff != "" || got.Allocation == nil || len(got.Starts) != 1 || got.Starts[0] != "starts" {
		t.Errorf("%+v\n%s", got, diff)
	}
}

// The planner says what another wish of a job would do to it and to the others, and nothing changes by the question.
func TestAVariantOfAJobIsTried(t *testing.T) {
	b := newBench(t)
	known := newCache()
	clear(known.missing)
	now := time.Now()
	known.observeNode(now, bus.Entry[train.Node]{Key: "n", Value: train.Node{
		ID: "n", JobAPI: "x", SeenAt: now, Cores: 1, Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Memory: 1 << 30}},
	}}, false)
	policy, err := plan.Find("switchyard")
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []train.JobID{"first", "second"} {
		spec := train.Spec{Name: string(id), EstimatedHours: 2, Device: train.KindGPU}.WithDefaults()
		known.observeJob(bus.Entry[*train.Job]{Key: string(id), Value: &train.Job{ID: id, Spec: spec, State: train.StateQueued, SubmittedAt: now.Add(time.Duration(i) * time.Second)}}, false)
	}
	q := &questions{bus: b.bus, log: slog.New(slog.DiscardHandler), cache: known, policy: policy, now: func() time.Time { return now }, timeout: time.Minute}
	more := 70
	answer, err := q.outlooks(b.ctx, rpc.OutlookRequest{Job: "second", Variants: []rpc.Variant{{Priority: &more}, {Devices: 2}, {Share: true}}})
	if err != nil || len(answer.Outlooks) != 4 {
		t.Fatalf("%+v, %v", answer, err)
	}
	asIs, ahead, wide, shared := answer.Outlooks[0], answer.Outlooks[1], answer.Outlooks[2], answer.Outlooks[3]
	if asIs.Waiting == nil || len(asIs.Shifted) > 0 || asIs.Predicted.Finish == nil || asIs.Energy == nil {
		t.Errorf("as it is: %+v", asIs.Outlook)
	}
	if ahead.Allocation == nil || !ahead.Predicted.Finish.Expected.Before(asIs.Predicted.Finish.Expected) {
		t.Errorf("with priority: %+v", ahead.Outlook)
	}
	if s := ahead.Shifted; len(s) != 1 || s[0].Job != "first" || s[0].Seconds < 3600 || !s[0].Finish.Expected.After(now) {
		t.Errorf("who is delayed: %+v", s)
	}
	if wide.Waiting == nil || wide.Waiting.Blockers[0].Code != "DevicesTooFew" {
		t.Errorf("on two devices: %+v", wide.Outlook)
	}
	if shared.Refused == nil || shared.Refused.Code != "MemoryUnknown" || shared.Outlook != nil {
		t.Errorf("shared, of unknown memory: %+v", shared)
	}
	if again, err := q.outlooks(b.ctx, rpc.OutlookRequest{Job: "second"}); err != nil || again.Outlooks[0].Waiting == nil || *known.jobs["second"].Spec.Priority != train.DefaultPriority {
		t.Errorf("afterwards: %+v, %v", again, err)
	}
	byPolicy, err := q.outlooks(b.ctx, rpc.OutlookRequest{Variants: []rpc.Variant{{Policy: "fifo"}, {Policy: "nobody"}}})
	if err != nil || len(byPolicy.Outlooks) != 3 {
		t.Fatalf("%+v, %v", byPolicy, err)
	}
	for i, o := range byPolicy.Outlooks[:2] {
		if o.Outlook == nil || len(o.Starts) != 1 || o.Starts[0] != "first" || o.Allocation != nil {
			t.Errorf("policy %d: %+v", i, o.Outlook)
		}
	}
	if refused := byPolicy.Outlooks[2].Refused; refused == nil || refused.Code != "NoSuchPolicy" {
		t.Errorf("an unknown policy: %+v", refused)
	}
	if _, err := q.outlooks(b.ctx, rpc.OutlookRequest{Job: "gone"}); err == nil {
		t.Error("a job that nobody knows has an outlook")
	}
}
