package planner

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
)

// send stores a message on the plans' subject as any client of NATS would.
func (b *bench) send(body, source string) {
	b.t.Helper()
	raw, err := nats.Connect(b.server.URL())
	if err != nil {
		b.t.Fatal(err)
	}
	defer raw.Close()
	m := nats.NewMsg(decision.Subject().String())
	m.Data = []byte(body)
	if source != "" {
		m.Header.Set(event.HeaderSource, source)
	}
	if _, err := raw.RequestMsgWithContext(b.ctx, m); err != nil {
		b.t.Fatal(err)
	}
}

func rubbish() map[string][2]string {
	return map[string][2]string{
		"no JSON":             {"garbage{", ""},
		"another form":        {`{"generation":"many"}`, ""},
		"nothing":             {"{}", ""},
		"the last generation": {`{"generation":18446744073709551615}`, ""},
		"a leap":              {fmt.Sprintf(`{"generation":%d}`, uint64(decision.FarthestLeap)+100), "planner"},
		"an old generation":   {`{"generation":1}`, "planner"},
		"somebody else":       {`{"generation":8}`, "executor"},
	}
}

func TestRubbishIsNoPlan(t *testing.T) {
	for name, r := range rubbish() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.node(2)
			put(b, b.jobs, "j", admitted("j", 1))
			p := train.Plan{Generation: 7, Policy: "optimus", Allocations: []train.Allocation{{Job: "j", Node: "a", Devices: []train.DeviceID{"cpu:0"}}}}
			if _, err := b.bus.PublishAfter(b.ctx, decision.Fact(p), 0); err != nil {
				t.Fatal(err)
			}
			b.send(r[0], r[1])
			b.serve()
			// The decision is the same, and is published again: an executor that starts now reads the newest
			// message only.
			plans := b.await(event.StreamPlans, key("plan/8"))
			if decided := decode[event.PlanDecided](t, plans[2]); len(plans) != 3 || len(decided.Allocations) != 1 || decided.Allocations[0].Devices[0] != "cpu:0" {
				t.Fatalf("%d messages, newest %+v", len(plans), decided)
			}
			if name == "an old generation" || name == "somebody else" {
				return
			}
			// While the planner runs.
			b.send(r[0], r[1])
			if plans = b.await(event.StreamPlans, key("plan/9")); len(plans) != 5 {
				t.Fatalf("%d messages", len(plans))
			}
		})
	}
}

func TestCountingGoesOnWhereNoPlanIsLeft(t *testing.T) {
	b := newBench(t)
	for range 30 {
		b.send("garbage{", "")
	}
	l := newLoop(t, b, "planner")
	for job, generation := range map[string]uint64{"old": 41, "older": 3, "mad": 1<<64 - 1} {
		l.cache.observeAttempt(bus.Entry[train.Attempt]{Key: job, Value: train.Attempt{Job: train.JobID(job), Generation: generation, Phase: train.PhaseExited}}, false)
	}
	if err := l.round(b.ctx); err != nil {
		t.Fatal(err)
	}
	if l.last.Generation != 42 || l.sequence != 31 || l.spoiled {
		t.Fatalf("generation %d at %d, spoiled %v; want 42 at 31", l.last.Generation, l.sequence, l.spoiled)
	}
	if err := l.round(b.ctx); err != nil {
		t.Fatal(err)
	}
	if l.last.Generation != 42 {
		t.Errorf("the same decision was published again as %d", l.last.Generation)
	}
}

// TestAQueueIsToldItsReasonsOnce: that a queue moves on is in the plan and worth no fact, another reason is. A planner
// that starts says nothing again.
func TestAQueueIsToldItsReasonsOnce(t *testing.T) {
	const jobs = 200
	records := make([]train.Job, jobs)
	for i := range records {
		records[i] = admitted(train.JobID(fmt.Sprintf("j%03d", i)), 1)
	}
	start := func() *loop {
		l := &loop{cache: newCache(), published: map[train.JobID]publication{}, newest: newest{known: true}}
		for _, j := range records {
			l.cache.observeJob(bus.Entry[*train.Job]{Key: string(j.ID), Value: &j}, false)
		}
		return l
	}
	queue := func(first int, code string) []train.Waiting {
		var waiting []train.Waiting
		for i := first; i < jobs; i++ {
			waiting = append(waiting, train.Waiting{Job: records[i].ID, Blockers: []train.Reason{{Code: code, Message: fmt.Sprintf("%d jobs are ahead", i-first)}, {Code: "B"}}})
		}
		return waiting
	}
	l := start()
	publish := func() int {
		facts, sent, _ := l.news()
		for i, now := range sent {
			l.published[now.job] = now
			at := slices.IndexFunc(records, func(j train.Job) bool { return j.ID == now.job })
			records[at].Blockers = facts[i].Body.(event.Queued).Blockers
		}
		return len(facts)
	}
	for first := range jobs {
		l.last.Waiting = queue(first, explain.WaitingForDevices)
		if n, want := publish(), map[int]int{0: jobs}[first]; n != want {
			t.Errorf("%d facts for step %d, want %d", n, first, want)
		}
	}
	l = start()
	l.last.Waiting = queue(0, explain.WaitingForDevices)
	if n := publish(); n != 0 {
		t.Errorf("a planner that starts publishes %d facts", n)
	}
	l.last.Waiting = queue(0, "Quota")
	if n := publish(); n != jobs {
		t.Errorf("%d facts for another reason, want %d", n, jobs)
	}
	if a, b := reasons([]train.Reason{{Code: "A", Message: "x"}, {Code: "C"}, {Code: "B"}}), reasons([]train.Reason{{Code: "A", Message: "y"}, {Code: "B"}, {Code: "C"}, {Code: "C"}}); a != b {
		t.Errorf("%q and %q", a, b)
	}
}

func TestAJobWaitsUntilAnAttemptOfItLives(t *testing.T) {
	for _, c := range []struct {
		state   train.State
		attempt train.Phase
		want    bool
	}{
		{train.StateQueued, "", true},
		{train.StateStarting, "", true}, // its devices were taken back, or it is paused
		{train.StateStarting, train.PhaseExited, true},
		{train.StateStarting, train.PhaseClaimed, false},
		{train.StateRunning, train.PhaseRunning, false},
		{train.StateRunning, "", false}, // the register is not behind for long
	} {
		p := &cache{jobs: map[string]*train.Job{"j": {ID: "j", State: c.state}}, attempts: map[string]train.Attempt{}}
		if c.attempt != "" {
			p.attempts["j"] = train.Attempt{Job: "j", Phase: c.attempt}
		}
		if _, got := p.waits("j"); got != c.want {
			t.Errorf("%s with an attempt that is %q: %v, want %v", c.state, c.attempt, got, c.want)
		}
	}
}
