package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func (b *bench) array(id, indices string) {
	b.send("yard.job."+id+".submitted.v1", strings.Replace(b.spec(), "{", fmt.Sprintf(`{"array":%q,`, indices), 1))
}

// An array is unfolded once, whatever is delivered again. It ends with the last of its jobs, and what waits for it goes
// on then.
func TestAnArrayIsUnfolded(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	b.array("sweep", "0-4:2%2")
	var before time.Time
	for _, index := range []int{0, 2, 4} {
		job := b.await(train.MemberID("sweep", index), inState(train.StateQueued))
		if m := job.Spec.ArrayMember; m == nil || *m != (train.ArrayMember{Array: "sweep", Index: index, Count: 3, AtOnce: 2}) || job.Spec.Array != "" {
			t.Errorf("job %d is member %+v of %q", index, m, job.Spec.Array)
		}
		if !job.SubmittedAt.After(before) {
			t.Errorf("job %d was submitted at %s, the one before at %s", index, job.SubmittedAt, before)
		}
		before = job.SubmittedAt
	}
	b.send("yard.job.waits.submitted.v1", b.after(`{"ok":["sweep"]}`))
	b.await("waits", inState(train.StateQueued))
	stop()
	// One job ends while admission is away. What it did before is done again: its consumer is gone.
	executor := bustestConnect(t, b, "executor")
	end := func(index int, fact string, body any) {
		t.Helper()
		if err := executor.Publish(b.ctx, event.OnceFact(train.MemberID("sweep", index), fact, "end", body)); err != nil {
			t.Fatal(err)
		}
	}
	end(0, event.FactSucceeded, event.Succeeded{Attempt: 1})
	js, err := b.raw.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(event.StreamJobs, "admission"); err != nil {
		t.Fatal(err)
	}
	b.serve()
	end(2, event.FactSucceeded, event.Succeeded{Attempt: 1})
	b.await("sweep", func(j train.Job) bool { return len(j.Ended) == 2 && j.State == train.StateQueued })
	end(4, event.FactSucceeded, event.Succeeded{Attempt: 1})
	if job := b.await("sweep", inState(train.StateSucceeded)); job.FinishedAt.IsZero() || job.Message != "3 of 3 jobs have ended, 3 succeeded" {
		t.Errorf("the array: %s, ended at %s", job.Message, job.FinishedAt)
	}
	b.await("waits", func(j train.Job) bool { return len(j.Awaits()) == 0 && !j.CancelRequested })
	submitted := map[string]int{}
	for _, m := range b.messages(event.StreamJobs) {
		if m.Parsed.Fact == event.FactSubmitted {
			submitted[m.Parsed.ID]++
		}
	}
	if len(submitted) != 5 {
		t.Errorf("submitted: %v", submitted)
	}
}

// A request to an array is one to each of its jobs that has not ended.
func TestARequestToAnArrayReachesItsJobs(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.array("sweep", "0-1")
	b.await("sweep-1", inState(train.StateQueued))
	b.await("sweep-0", inState(train.StateQueued))
	b.send("yard.job.sweep.wanted.v1", `{"state":"held","by":"ann"}`)
	for _, id := range []train.JobID{"sweep", "sweep-0", "sweep-1"} {
		b.await(id, inState(train.StateHeld))
	}
	b.send("yard.job.sweep.cancel_requested.v1", `{"by":"ann"}`)
	for _, id := range []train.JobID{"sweep-0", "sweep-1"} {
		b.await(id, func(j train.Job) bool { return j.CancelRequested })
	}
	executor := bustestConnect(t, b, "executor")
	for _, id := range []train.JobID{"sweep-0", "sweep-1"} {
		if err := executor.Publish(b.ctx, event.OnceFact(id, event.FactCancelled, "end", event.Cancelled{})); err != nil {
			t.Fatal(err)
		}
	}
	b.await("sweep", inState(train.StateCancelled))
}

func TestArraysThatAreRefused(t *testing.T) {
	b := newBench(t)
	b.serve()
	for id, c := range map[string]struct{ indices, want string }{
		"million":                              {"0-1000000", "array: \"0-1000000\" has more than 100000 jobs"},
		"thousand":                             {"1-1001", "array: want at most 1000 jobs, found 1001"},
		"backwards":                            {"5-1", `array: "5-1" ends before it begins`},
		"long" + strings.Repeat("-", 57) + "x": {"10-11", "are longer than 64 characters"},
	} {
		b.array(id, c.indices)
		if job := b.await(train.JobID(id), inState(train.StateRejected)); !strings.Contains(job.Message, c.want) {
			t.Errorf("%s: %q, want %q", id, job.Message, c.want)
		}
	}
	b.send("yard.job.forged.submitted.v1", strings.Replace(b.spec(), "{", `{"array":"0-1","array_member":{"array":"x","index":1,"count":2},`, 1))
	if job := b.await("forged", inState(train.StateRejected)); !strings.Contains(job.Message, "array_member: admission sets it") {
		t.Errorf("forged: %q", job.Message)
	}
}

// A job that has the id of a job of an array is none of it. An array that comes later is refused. An array that came
// first counts its place as rejected, and leaves that job alone.
func TestAnArrayHasNoJobOfOthers(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	b.send("yard.job.before-1.submitted.v1", b.spec())
	b.await("before-1", inState(train.StateQueued))
	b.array("before", "0-2")
	if job := b.await("before", inState(train.StateRejected)); !strings.Contains(job.Message, "array: before-1 is a job already") {
		t.Errorf("refused: %q", job.Message)
	}
	// Both are on the stream before admission knows either.
	stop()
	b.array("late", "0-1")
	b.send("yard.job.late-1.submitted.v1", b.spec())
	b.serve()
	b.await("late-0", inState(train.StateQueued))
	b.await("late-1", inState(train.StateQueued))
	b.send("yard.job.late.cancel_requested.v1", `{"by":"ann"}`)
	b.await("late-0", func(j train.Job) bool { return j.CancelRequested })
	executor := bustestConnect(t, b, "executor")
	cancelled := event.OnceFact("late-0", event.FactCancelled, "end", event.Cancelled{})
	succeeded := event.OnceFact("late-1", event.FactSucceeded, "end", event.Succeeded{Attempt: 1})
	if err := executor.Publish(b.ctx, cancelled, succeeded); err != nil {
		t.Fatal(err)
	}
	if job := b.await("late-1", inState(train.StateSucceeded)); job.CancelRequested {
		t.Error("a job of its own was cancelled with the array")
	}
	if job := b.await("late", inState(train.StateCancelled)); job.Ended["late-1"] != train.StateRejected {
		t.Errorf("the array has ended with %v", job.Ended)
	}
}

// A job says itself that it is part of an array: nobody else says so.
func TestAPlaceInAnArrayIsNotClaimed(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.send("yard.job.x-1.submitted.v1", strings.Replace(b.spec(), "{", `{"array_member":{"array":"x","index":1,"count":2},`, 1))
	if job := b.await("x-1", inState(train.StateRejected)); !strings.Contains(job.Message, "array_member: admission sets it") {
		t.Errorf("forged: %q", job.Message)
	}
}
