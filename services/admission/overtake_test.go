package admission

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// TestAWishOvertakesALongQueueOfFacts: a cancellation behind very many facts of other jobs takes effect at once, with
// the facts of its own job before it, and changes nothing when its turn comes. Behind few it waits, and so does one
// for a job without a verdict.
func TestAWishOvertakesALongQueueOfFacts(t *testing.T) {
	b := newBench(t)
	d := newHandler(b.bus, b.jobs, fit.Identity{User: "ann", Tenant: "vision"}, looking(b.root), slog.New(slog.DiscardHandler), newMeters(nil))
	turn := func(from int) {
		t.Helper()
		for _, m := range b.messages(event.StreamJobs)[from:] {
			facts, err := d.handle(b.ctx, m)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.bus.Publish(b.ctx, facts...); err != nil {
				t.Fatal(err)
			}
		}
	}
	record := func(id train.JobID) train.Job {
		t.Helper()
		e, err := b.jobs.Get(b.ctx, string(id))
		if err != nil {
			t.Fatal(err)
		}
		return e.Value
	}
	overtake := func() {
		t.Helper()
		all := b.messages(event.StreamJobs)
		facts, err := d.overtake(b.ctx, all[len(all)-1])
		if err != nil {
			t.Fatal(err)
		}
		if err := b.bus.Publish(b.ctx, facts...); err != nil {
			t.Fatal(err)
		}
	}
	b.send("yard.job.a.submitted.v1", b.spec())
	turn(0)
	turn(1) // admitted
	b.send("yard.job.a.wanted.v1", `{"state":"held"}`)
	if overtake(); record("a").Wanted.State != "" {
		t.Fatal("a wish whose turn is next overtakes")
	}
	b.send("yard.job.late.submitted.v1", b.spec())
	for i := range overtakeAfter {
		b.send(fmt.Sprintf("yard.job.other-%d.submitted.v1", i), b.spec())
	}
	b.sendAs("planner", "yard.job.a.planned.v1", `{"generation":7,"node":"n","devices":["cpu:0"]}`)
	b.send("yard.job.a.cancel_requested.v1", "{}")
	overtake()
	after := record("a")
	if !after.CancelRequested || after.Generation != 7 || after.Wanted.State != train.WantHeld {
		t.Fatalf("record %+v: want both wishes and the plan", after)
	}
	b.send("yard.job.late.cancel_requested.v1", "{}")
	overtake()
	if e, err := b.jobs.Get(b.ctx, "late"); err == nil {
		t.Fatalf("a job without a verdict has the record %+v", e.Value)
	}
	turn(2)
	if again := record("a"); again.LastSequence != after.LastSequence {
		t.Errorf("its turn changes the record from %d to %d", after.LastSequence, again.LastSequence)
	}
	if !record("late").CancelRequested {
		t.Error("the wish of a job without a verdict is lost")
	}
}
