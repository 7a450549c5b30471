package planner

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

func TestOnlyTimeInWhichANodeWouldBeHeardAgesIt(t *testing.T) {
	now := time.Unix(10_000, 0)
	p := newCache()
	devices := []train.Device{{ID: "cpu:0"}, {ID: "cpu:1"}}
	node := train.Node{ID: "a", SeenAt: now, Devices: devices}
	say := func() {
		node.SeenAt = node.SeenAt.Add(5 * time.Second)
		p.observeNode(now, bus.Entry[train.Node]{Key: "a", Value: node}, false)
	}
	p.observeNode(now, bus.Entry[train.Node]{Key: "a", Value: node}, false)
	p.observeJob(bus.Entry[*train.Job]{Key: "j", Value: new(admitted("j", 1))}, false)
	p.observeAttempt(bus.Entry[train.Attempt]{Key: "j", Value: train.Attempt{Job: "j", Node: "a", Devices: []train.DeviceID{"cpu:1"}, Phase: train.PhaseRunning}}, false)
	listen := func(d time.Duration, connected bool) {
		for end := now.Add(d); now.Before(end); p.listen(now, connected) {
			now = now.Add(time.Second)
		}
	}
	want := func(what string, n int) {
		t.Helper()
		got := 0
		s := p.state(now, train.Plan{}, false, plan.State{})
		for _, node := range s.Offered() {
			got += len(node.Devices)
		}
		if got != n {
			t.Errorf("%s: %d devices, want %d", what, got, n)
		}
	}
	listen(10*time.Second, true)
	want("at first", 2)
	now = now.Add(time.Hour) // the machine slept
	p.listen(now, true)
	want("after a pause", 2)
	listen(time.Hour, false)
	want("after the bus was away", 2)
	now = now.Add(-24 * time.Hour)
	p.listen(now, true)
	want("after the clock was put back", 2)
	listen(records.NodeTimeout, true)
	want("not heard for a while: what runs there stays", 1)
	p.observeNode(now, bus.Entry[train.Node]{Key: "a", Value: node}, false)
	want("the same record listed again", 1)
	say()
	want("back", 2)
	listen(records.NodeLost, true)
	want("lost", 0)
	now = now.Add(time.Hour)
	p.listen(now, true)
	want("a pause brings nobody back", 0)
	for range 100 {
		listen(5*time.Second, true)
		say()
	}
	want("a node whose clock is wrong by hours, and that speaks", 2)
}

// A job that may share its device goes on while the node says nothing, and nobody new comes beside it.
func TestNobodyComesBesideAJobOfASilentNode(t *testing.T) {
	now := time.Unix(10_000, 0)
	p := newCache()
	node := train.Node{ID: "a", SeenAt: now, Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Memory: 16 * unit.GiB, Enforcement: train.EnforcedByAdvice}}}
	p.observeNode(now, bus.Entry[train.Node]{Key: "a", Value: node}, false)
	last := train.Plan{Allocations: []train.Allocation{{Job: "host", Node: "a", Devices: []train.DeviceID{"gpu:0"}, Memory: 4 * unit.GiB}}}
	for _, id := range []train.JobID{"host", "new"} {
		j := admitted(id, 1)
		j.Spec.AllowSharing, j.Spec.EstimatedMemoryMiB = true, 4<<10
		p.observeJob(bus.Entry[*train.Job]{Key: string(id), Value: &j}, false)
	}
	a := train.Attempt{Job: "host", Number: 1, Node: "a", Devices: []train.DeviceID{"gpu:0"}, Memory: 4 * unit.GiB, Phase: train.PhaseRunning}
	p.observeAttempt(bus.Entry[train.Attempt]{Key: "host", Value: a}, false)
	wait := func(d time.Duration) {
		for range d / time.Second {
			now = now.Add(time.Second)
			p.listen(now, true)
		}
	}
	for _, c := range []struct {
		after   time.Duration
		running int
	}{{10 * time.Second, 2}, {39 * time.Second, 1}} {
		wait(c.after)
		decided := plan.Decide(p.state(now, last, true, plan.State{}), plan.Switchyard{})
		if len(decided.Allocations) != c.running {
			t.Errorf("after %v more: %+v, want %d jobs", c.after, decided.Allocations, c.running)
		}
	}
}

func TestJobsOfANodeGoOnAfterALongPause(t *testing.T) {
	b := newBench(t)
	put(b, b.nodes, "a", train.Node{ID: "a", SeenAt: time.Now().Add(-time.Hour), Devices: []train.Device{{ID: "cpu:0"}, {ID: "cpu:1"}}})
	running := admitted("running", 1)
	running.State = train.StateRunning
	put(b, b.jobs, "running", running)
	put(b, openKV(b, contract.Attempts), "running", train.Attempt{
		Job: "running", Number: 1, Generation: 6, Node: "a", Devices: []train.DeviceID{"cpu:1"}, Phase: train.PhaseRunning, StartedAt: time.Now().Add(-time.Hour),
	})
	p := train.Plan{Generation: 6, Policy: "optimus", Allocations: []train.Allocation{{Job: "running", Node: "a", Devices: []train.DeviceID{"cpu:1"}}}}
	if _, err := b.bus.PublishAfter(b.ctx, decision.Fact(p), 0); err != nil {
		t.Fatal(err)
	}
	put(b, b.jobs, "next", admitted("next", 1))
	b.serve()
	plans := b.await(event.StreamPlans, key("plan/7"))
	decided := decode[event.PlanDecided](t, plans[1])
	if _, kept := decided.Find("running"); !kept || len(decided.Waiting) != 1 {
		t.Fatalf("%+v", decided)
	}
	b.node(2) // the agent speaks again
	plans = b.await(event.StreamPlans, key("plan/8"))
	if decided = decode[event.PlanDecided](t, plans[2]); len(decided.Allocations) != 2 {
		t.Fatalf("%+v", decided)
	}
}
