package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
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

// A job begins where the job that it continues had come in its checkpoints. A job without a checkpoint, a job of
// another user and one that runs are refused.
func TestAJobContinuesAnother(t *testing.T) {
	b := newBench(t)
	continues := func(id, other, more string) {
		b.send("yard.job."+id+".submitted.v1", strings.Replace(b.spec(), "{", fmt.Sprintf(`{"continue":%q%s,`, other, more), 1))
	}
	b.serve()
	for _, id := range []string{"saved", "runs", "empty"} {
		b.send("yard.job."+id+".submitted.v1", b.spec())
		b.await(train.JobID(id), inState(train.StateQueued))
	}
	executor, agent := bustestConnect(t, b, "executor"), bustestConnect(t, b, "nodeagent")
	publish := func(by *bus.Bus, f event.Fact) {
		t.Helper()
		if err := by.Publish(b.ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []train.JobID{"saved", "runs", "empty"} {
		publish(executor, event.JobFact(id, event.FactStarted, "attempt/1/started", event.Started{Attempt: 1}))
	}
	publish(agent, event.JobFact("saved", event.FactEpochEnded, "attempt/1/epoch/2", event.EpochEnded{Attempt: 1, EpochsDone: 2}))
	publish(agent, event.JobFact("saved", event.FactCheckpointWritten, "attempt/1/checkpoint/2", event.CheckpointWritten{
		Attempt: 1, EpochsDone: 2, EpochStep: 3, EpochSteps: 9, Path: "/snapshots/x/model",
	}))
	for _, id := range []train.JobID{"saved", "empty"} {
		publish(executor, event.OnceFact(id, event.FactFailed, "end", event.Failed{Attempt: 1}))
		b.await(id, inState(train.StateFailed))
	}
	if _, err := b.jobs.Swap(b.ctx, "others", train.Job{ID: "others", Spec: train.Spec{User: "bob"}, State: train.StateFailed, EpochsDone: 1}, 0); err != nil {
		t.Fatal(err)
	}
	continues("next", "saved", "")
	if job := b.await("next", func(j train.Job) bool { return j.State != train.StateSubmitted }); job.State != train.StateQueued ||
		job.EpochsDone != 2 || job.EpochStep != 3 || job.Checkpoint != "/snapshots/x/model" || !strings.Contains(job.Message, "continues saved after step 3 of 9 of epoch 3") {
		t.Errorf("%s: %s, after %d epochs", job.State, job.Message, job.EpochsDone)
	}
	for id, c := range map[string]struct{ other, want string }{
		"unknown": {"nobody", `continue: want a job that was submitted before this one, found "nobody"`},
		"itself":  {"itself", `continue: want a job that was submitted before this one, found "itself"`},
		"running": {"runs", "continue: want a job that has ended or is paused, and runs is "},
		"nothing": {"empty", "continue: empty has saved no checkpoint (leave continue out"},
		"foreign": {"others", `continue: others belongs to "bob", and this job to "ann"`},
	} {
		continues(id, c.other, "")
		if job := b.await(train.JobID(id), inState(train.StateRejected)); !strings.Contains(job.Message, c.want) {
			t.Errorf("%s: %q, want %q", id, job.Message, c.want)
		}
	}
}

// A dry run is judged as a submission is, and leaves nothing behind.
func TestACandidateIsNotSubmitted(t *testing.T) {
	b := newBench(t)
	nodes, err := bus.OpenKV(b.ctx, b.bus, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	node := train.Node{ID: "n1", Cores: 2, Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}, {ID: "cpu:1", Kind: train.KindCPU}}}
	if _, err := nodes.Swap(b.ctx, "n1", node, 0); err != nil {
		t.Fatal(err)
	}
	b.serve()
	b.send("yard.job.known.submitted.v1", b.spec())
	b.await("known", inState(train.StateQueued))
	for _, c := range []struct {
		id, spec   string
		state      train.State
		infeasible bool
		message    string
	}{
		{"good", b.spec(), train.StateQueued, false, "position 2 in the queue"},
		{"bad", `{"name":"x"}`, train.StateRejected, false, "neither command"},
		{"huge", strings.Replace(b.spec(), "{", `{"devices":9,`, 1), train.StateRejected, true, "9"},
	} {
		job, err := bus.Ask[rpc.Candidate, train.Job](b.ctx, b.bus, rpc.CandidateSubject, rpc.Candidate{ID: train.JobID(c.id), Spec: []byte(c.spec)})
		if err != nil || job.State != c.state || job.Infeasible != c.infeasible || !strings.Contains(job.Message, c.message) {
			t.Errorf("%s: %s, infeasible %t: %q, error %v", c.id, job.State, job.Infeasible, job.Message, err)
		}
		if _, err := b.jobs.Get(b.ctx, c.id); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("%s has a record, or its look-up failed: %v", c.id, err)
		}
	}
}
