package planner

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
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

func TestAQueueIsToldInSteps(t *testing.T) {
	l := &loop{cache: newCache(), published: map[train.JobID]publication{}, newest: newest{known: true}}
	const jobs = 200
	count := map[train.JobID]int{}
	for i := range jobs {
		j := admitted(train.JobID(fmt.Sprintf("j%03d", i)), 1)
		l.cache.observeJob(bus.Entry[train.Job]{Key: string(j.ID), Value: j}, false)
	}
	for first := range jobs {
		l.last.Generation++
		l.last.Waiting = nil
		for i := first; i < jobs; i++ {
			l.last.Waiting = append(l.last.Waiting, train.Waiting{Job: train.JobID(fmt.Sprintf("j%03d", i)), Blockers: []train.Reason{
				{Code: plan.ReasonWaitingForDevices, Message: fmt.Sprintf("all devices are taken, %d jobs are ahead", i-first)}, {Code: "B"},
			}})
		}
		facts, sent, _ := l.news()
		for i, s := range sent {
			l.published[s.job] = s
			count[s.job]++
			if at := facts[i].Body.(event.Queued).Position; first > 0 && at <= closePosition && s.job != l.last.Waiting[at-1].Job {
				t.Errorf("%s told position %d", s.job, at)
			}
		}
	}
	// 200, 100, 50, 25, 12, 6, 3, 2, 1.
	if n := count["j199"]; n != 9 {
		t.Errorf("the last job was told %d times, want 9", n)
	}
	for id, s := range l.published {
		if s.position != 1 {
			t.Errorf("%s was last told position %d", id, s.position)
		}
	}
}

func TestWhatIsWorthAFact(t *testing.T) {
	before := publication{"j", "queued A: A B", 40}
	for _, c := range []struct {
		now  publication
		told bool
	}{
		{publication{"j", "queued A: A B", 40}, false},
		{publication{"j", "queued A: A B", 21}, false},
		{publication{"j", "queued A: A B", 20}, true},
		{publication{"j", "queued A: A B", 79}, false},
		{publication{"j", "queued A: A B", 80}, true},
		{publication{"j", "queued A: A B", 3}, true},
		{publication{"j", "queued B: A B", 40}, true},
		{publication{"j", "queued A: A", 40}, true},
		{publication{"j", "planned a cpu:0", 0}, true},
	} {
		if c.now.repeats(before) == c.told {
			t.Errorf("%+v after %+v: told %v", c.now, before, !c.told)
		}
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
		p := &cache{jobs: map[string]train.Job{"j": {ID: "j", State: c.state}}, attempts: map[string]train.Attempt{}}
		if c.attempt != "" {
			p.attempts["j"] = train.Attempt{Job: "j", Phase: c.attempt}
		}
		if got := p.waits("j"); got != c.want || p.waits("unknown") {
			t.Errorf("%s with an attempt that is %q: %v, want %v", c.state, c.attempt, got, c.want)
		}
	}
}
