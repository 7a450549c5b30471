package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// lose deletes the register as a damaged disk or a wrong command would.
func (b *bench) lose() {
	b.t.Helper()
	js, err := jetstream.New(b.raw)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := js.DeleteKeyValue(b.ctx, string(contract.Jobs)); err != nil {
		b.t.Fatal(err)
	}
}

// fill has the service fold jobs in several states, and returns their records.
func (b *bench) fill() map[train.JobID]train.Job {
	b.t.Helper()
	for i := range 12 {
		b.send(fmt.Sprintf("yard.job.j%d.submitted.v1", i), b.spec())
	}
	for i := range 12 {
		b.await(train.JobID(fmt.Sprintf("j%d", i)), func(j train.Job) bool { return j.State == train.StateQueued })
	}
	b.sendAs("executor", "yard.job.j1.started.v1", `{"attempt":1,"generation":1,"node":"n1","devices":["cpu:0"],"epochs_done":0,"mounts":true}`)
	b.sendAs("nodeagent", "yard.job.j1.epoch_ended.v1", `{"attempt":1,"epochs_done":2}`)
	b.send("yard.job.j2.cancel_requested.v1", `{"reason":"enough"}`)
	b.sendAs("executor", "yard.job.j2.cancelled.v1", `{"attempt":0}`)
	b.send("yard.job.j3.edit_requested.v1", `{"set":{"priority":70}}`)
	b.send("yard.job.j4.wanted.v1", `{"state":"held","by":"ann"}`)
	b.send("yard.job.bad.submitted.v1", `{`)
	b.await("j1", func(j train.Job) bool { return j.EpochsDone == 2 })
	b.await("j2", func(j train.Job) bool { return j.State == train.StateCancelled })
	b.await("j3", func(j train.Job) bool { return len(j.Edits) == 1 })
	b.await("j4", func(j train.Job) bool { return j.State == train.StateHeld })
	b.await("bad", func(j train.Job) bool { return j.State == train.StateRejected })
	return b.all()
}

// all returns the register without what a fold in another order of edits may set otherwise.
func (b *bench) all() map[train.JobID]train.Job {
	b.t.Helper()
	entries, err := b.jobs.List(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	jobs := map[train.JobID]train.Job{}
	for _, e := range entries {
		e.Value.LastSequence = 0
		jobs[e.Value.ID] = e.Value
	}
	return jobs
}

func TestALostRegisterIsFoldedAgain(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	want := b.fill()
	b.lose() // live
	b.send("yard.job.late.submitted.v1", b.spec())
	late := b.await("late", func(j train.Job) bool { return j.State == train.StateQueued })
	late.LastSequence = 0
	want["late"] = late
	if diff := cmp.Diff(want, b.all()); diff != "" {
		t.Errorf("after a live loss (-want): %s", diff)
	}
	stop()
	b.lose() // at rest
	if err := b.bus.Ensure(b.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := b.jobs.List(b.ctx); !errors.Is(err, bus.ErrPartial) {
		t.Errorf("a register that is not whole is listed: %v", err)
	}
	b.serve()
	b.await("late", func(j train.Job) bool { return j.State == train.StateQueued })
	if diff := cmp.Diff(want, b.all()); diff != "" {
		t.Errorf("after a loss at rest (-want): %s", diff)
	}
	if n := b.poisoned(); n > 0 {
		t.Errorf("%d facts were set aside", n)
	}
}

// A record that is missing alone is made again when the next fact about its job comes.
func TestALostRecordIsFoldedAgain(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.fill()
	e, err := b.jobs.Get(b.ctx, "j5")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.jobs.Delete(b.ctx, "j5", e.Revision); err != nil {
		t.Fatal(err)
	}
	b.compareWith("j5: JOBS has its submission, but the register has no record")
	b.send("yard.job.j5.wanted.v1", `{"state":"held","by":"ann"}`)
	b.await("j5", func(j train.Job) bool { return j.State == train.StateHeld })
	b.compareWith()
	if n := b.poisoned(); n > 0 {
		t.Errorf("%d facts were set aside", n)
	}
}

func TestRegisterAndStreamAreCompared(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.fill()
	b.compareWith()
	_, err := b.jobs.Modify(b.ctx, "j1", func(j *train.Job) (bool, error) { j.EpochsDone = 7; return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	b.compareWith(`j1: epochs_done is 7, but the facts make it 2`)
}

// compareWith compares register and stream and wants these differences.
func (b *bench) compareWith(want ...string) {
	b.t.Helper()
	d := newHandler(b.bus, b.jobs, fit.Identity{User: "ann", Tenant: "vision"}, folders{}, slog.New(slog.DiscardHandler), nil)
	if err := bus.Open(b.ctx, b.bus, contract.Bucket[contract.Trials](contract.Experiments), &d.experiments); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	got, _, err := d.compare(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	if diff := cmp.Diff(append([]string(nil), want...), got); diff != "" {
		b.t.Errorf("differences (-want): %s", diff)
	}
}

// What a record has beyond the facts that JOBS has kept is the trace of a known loss. Other jobs are compared.
func TestLostFactsAreNoDifference(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.fill()
	m, err := b.bus.Last(b.ctx, event.StreamJobs, event.JobSubject("j1", event.FactEpochEnded))
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(b.raw)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(b.ctx, event.StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(b.ctx, m.Sequence); err != nil {
		t.Fatal(err)
	}
	b.send("yard.job.late.submitted.v1", b.spec())
	b.await("late", func(j train.Job) bool { return j.State == train.StateQueued })
	b.compareWith()
	found, lost, err := Compare(b.ctx, b.bus)
	if want := "j1: epochs_done is 2, but the facts make it 0"; err != nil || len(found) > 0 || !slices.Contains(lost, want) {
		t.Errorf("found %q, lost %q, %v", found, lost, err)
	}
	_, err = b.jobs.Modify(b.ctx, "late", func(j *train.Job) (bool, error) { j.EpochsDone = 7; return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	b.compareWith(`late: epochs_done is 7, but the facts make it 0`)
}

func (b *bench) poisoned() uint64 {
	b.t.Helper()
	last, err := b.bus.LastSequence(b.ctx, event.StreamPoison)
	if err != nil {
		b.t.Fatal(err)
	}
	return last
}
