package planner

import (
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
)

// TestASlowWorkerIsReplaced plays executor and profiler: an attempt runs, one of its devices is found to be slow,
// and the next plan replaces just that one.
func TestASlowWorkerIsReplaced(t *testing.T) {
	b := newBench(t)
	b.node(4)
	j := admitted("x", 3)
	j.Spec.MaxDevices, j.Spec.MaxEpochs, j.State, j.EpochsDone = 3, 100, train.StateRunning, 5
	put(b, b.jobs, "x", j)
	attempts, reports, models := openKV(b, contract.Attempts), openKV(b, contract.Reports), openKV(b, contract.Models)
	held := []train.DeviceID{"cpu:0", "cpu:1", "cpu:2"}
	attempt := train.Attempt{Job: "x", Number: 1, Node: "a", Devices: held, Phase: train.PhaseRunning, StartedAt: time.Now().Add(-time.Hour)}
	put(b, attempts, "x", attempt)
	put(b, reports, "x.1", train.AttemptReport{Job: "x", Attempt: 1, EpochsDone: 5, Spoke: true})
	model := train.Model{Job: "x", EpochSeconds: 60, EpochConfig: train.Config{Workers: 3, Nodes: 1, LocalBatch: 32}, EpochsSeen: 5}
	put(b, models, "x", model)
	b.serve()
	if p := decode[event.PlanDecided](t, b.await(event.StreamPlans, key("plan/1"))[0]); !slices.Equal(p.Allocations[0].Devices, held) {
		t.Fatalf("plan %+v", p)
	}
	model.Stragglers = []train.Straggler{{Attempt: 1, Rank: 1, Node: "a", Device: "cpu:1", Slowdown: 2.5}}
	put(b, models, "x", model)
	told := b.await(event.StreamJobs, key("plan/2/job/x/planned"))
	want := []train.DeviceID{"cpu:0", "cpu:2", "cpu:3"}
	if p := decode[event.Planned](t, told[len(told)-1]); !slices.Equal(p.Devices, want) || p.Reason.Code != explain.ReplacedStraggler {
		t.Fatalf("planned %+v", p)
	}
	// Carried out, it stays so: the next plan comes only with the next news.
	attempt.Number, attempt.Devices = 2, want
	put(b, attempts, "x", attempt)
	put(b, reports, "x.2", train.AttemptReport{Job: "x", Attempt: 2, EpochsDone: 6, Spoke: true})
	put(b, b.jobs, "y", admitted("y", 1))
	told = b.await(event.StreamJobs, key("plan/3/job/y/planned"))
	plans := b.await(event.StreamPlans, key("plan/3"))
	newest := decode[event.PlanDecided](t, plans[2])
	if x, _ := newest.Find("x"); !slices.Equal(x.Devices, want) {
		t.Fatalf("plan %+v, told %d", newest, len(told))
	}
	if y, _ := newest.Find("y"); !slices.Equal(y.Devices, []train.DeviceID{"cpu:1"}) {
		t.Fatalf("y gets %+v: the device is slow for x alone", y)
	}
}

func TestRecentRestartsAreThoseOfTheLastHour(t *testing.T) {
	now := time.Unix(100_000, 0)
	j := admitted("x", 1)
	for _, c := range []struct {
		fact string
		age  time.Duration
	}{
		{event.FactPreempted, 2 * time.Hour},
		{event.FactPreempted, 59 * time.Minute},
		{event.FactStarted, 58 * time.Minute},
		{event.FactAttemptLost, 30 * time.Minute},
		{event.FactPreempted, time.Minute},
	} {
		j.History = append(j.History, train.Change{At: now.Add(-c.age), Fact: c.fact})
	}
	p := newCache()
	p.observeJob(bus.Entry[*train.Job]{Key: "x", Value: &j}, false)
	if s := p.state(now, train.Plan{}, false, plan.State{}); s.Jobs[0].RecentRestarts != 2 {
		t.Errorf("%d restarts, want 2", s.Jobs[0].RecentRestarts)
	}
}

func TestAnotherServerIsAnotherPlan(t *testing.T) {
	one := train.Plan{Allocations: []train.Allocation{{Job: "x", Parts: []train.Part{{Node: "a", Devices: []train.DeviceID{"gpu:0"}}, {Node: "b", Devices: []train.DeviceID{"gpu:1"}}}}}}
	for name, change := range map[string]func(*train.Allocation){
		"servers": func(a *train.Allocation) { a.Servers = []train.ServerPart{{Node: "a", Count: 1}} },
		"parts":   func(a *train.Allocation) { a.Parts = a.Parts[:1] },
		"nothing": func(*train.Allocation) {},
	} {
		a := one.Allocations[0]
		change(&a)
		if differs(one, train.Plan{Allocations: []train.Allocation{a}}) != (name != "nothing") {
			t.Errorf("%s: wrong", name)
		}
	}
}
