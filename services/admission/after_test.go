package admission

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// after is the spec of a job that waits for others.
func (b *bench) after(on string) string {
	return strings.Replace(b.spec(), "{", fmt.Sprintf(`{"after":%s,`, on), 1)
}

// A job that waits for others learns of each end, also if admission was away at that moment. If its condition can no
// longer hold it is cancelled.
func TestAJobWaitsForOthers(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	for _, id := range []string{"a", "b", "c"} {
		b.send("yard.job."+id+".submitted.v1", b.spec())
	}
	b.send("yard.job.waits.submitted.v1", b.after(`{"ok":["a"],"any":["b","c"]}`))
	b.send("yard.job.never.submitted.v1", b.after(`{"failed":["a"]}`))
	// It is not known yet whether this one will be admitted.
	b.send("yard.job.bad.submitted.v1", `{"name":"x"}`)
	b.send("yard.job.orphan.submitted.v1", b.after(`{"ok":["bad"]}`))
	b.await("waits", inState(train.StateQueued))
	b.await("orphan", func(j train.Job) bool { return j.CancelRequested || j.State == train.StateRejected })
	stop()
	executor := bustestConnect(t, b, "executor")
	end := func(id train.JobID, fact string, body any) {
		t.Helper()
		if err := executor.Publish(b.ctx, event.OnceFact(id, fact, "end", body)); err != nil {
			t.Fatal(err)
		}
	}
	end("b", event.FactFailed, event.Failed{Attempt: 1})
	b.serve()
	end("a", event.FactSucceeded, event.Succeeded{Attempt: 1})
	end("c", event.FactCancelled, event.Cancelled{})
	job := b.await("waits", func(j train.Job) bool { return len(j.Awaits()) == 0 })
	want := map[train.JobID]train.State{"a": train.StateSucceeded, "b": train.StateFailed, "c": train.StateCancelled}
	if diff := cmp.Diff(want, job.Ended); diff != "" || job.CancelRequested || job.ReadyAt.IsZero() {
		t.Errorf("%s, cancelled %t, ready at %s", diff, job.CancelRequested, job.ReadyAt)
	}
	b.await("never", func(j train.Job) bool { return j.CancelRequested && j.Reason == "DependencyNeverSatisfied" })
	// What has ended before counts.
	b.send("yard.job.late.submitted.v1", b.after(`{"ok":["a"],"any":["b"]}`))
	if job := b.await("late", func(j train.Job) bool { return j.State != train.StateSubmitted }); job.State != train.StateQueued || len(job.Awaits()) > 0 {
		t.Errorf("%s: %s, waits for %v", job.State, job.Message, job.Awaits())
	}
}

func TestAJobCannotWaitForEveryJob(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.send("yard.job.bad.submitted.v1", `{"name":"x"}`)
	b.send("yard.job.good.submitted.v1", b.spec())
	b.await("good", inState(train.StateQueued))
	b.await("bad", inState(train.StateRejected))
	many := strings.Repeat(`"good",`, 200)
	for id, c := range map[string]struct{ after, want string }{
		"unknown": {`{"ok":["nobody","a.b"]}`, `want a job that was submitted before this one, found "nobody"`},
		"itself":  {`{"any":["itself"]}`, `want a job that was submitted before this one, found "itself"`},
		"twice":   {`{"ok":["good"],"any":["good"]}`, `after.any: "good" is also in after.ok`},
		"ended":   {`{"ok":["bad"]}`, `after.ok: waits for bad to succeed, and that job has ended as rejected`},
		"many":    {`{"ok":[` + many[:len(many)-1] + `]}`, "want at most 100 jobs, found 200"},
	} {
		b.send("yard.job."+id+".submitted.v1", b.after(c.after))
		if job := b.await(train.JobID(id), inState(train.StateRejected)); !strings.Contains(job.Message, c.want) {
			t.Errorf("%s: %q, want %q", id, job.Message, c.want)
		}
	}
}
