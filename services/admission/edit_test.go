package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// edited waits for the answer to the request with this id.
func (b *bench) edited(job train.JobID, id string) (train.Job, train.Edited) {
	b.t.Helper()
	j := b.await(job, func(j train.Job) bool {
		_, answered := j.EditBy(id)
		return answered
	})
	e, _ := j.EditBy(id)
	return j, e
}

func TestTheSpecOfALiveJobChanges(t *testing.T) {
	b := newBench(t)
	stop := b.serve()
	b.send("yard.job.a.submitted.v1", strings.Replace(b.spec(), "{", fmt.Sprintf(`{"labels":{"phase":"warmup"},"deadline":%q,`, time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339)), 1))
	b.await("a", inState(train.StateQueued))
	ask := func(id, body string) (train.Job, train.Edited) {
		b.send("yard.job.a.edit_requested.v1", fmt.Sprintf(`{"id":%q,"by":"ann",%s`, id, body[1:]))
		return b.edited("a", id)
	}
	job, e := ask("one", `{"set":{"priority":80,"time_limit":"2h","labels":{"lr":"3"},"devices":1},"unset":["deadline","labels.phase"],"reason":"paper"}`)
	if *job.Spec.Priority != 80 || job.Spec.TimeLimit.String() != "2h" || job.Spec.Deadline != nil || len(job.Spec.Labels) != 1 || job.Spec.Labels["lr"] != "3" {
		t.Errorf("%+v", job.Spec)
	}
	if e.By != "ann" || e.Reason != "paper" || e.At.IsZero() || !slices.Contains(e.Keys, train.KeyEdit{Key: "priority", Before: "50", After: "80"}) || len(e.Keys) != 4 {
		t.Errorf("%+v", e)
	}
	for i, c := range []struct{ body, want string }{
		{`{"set":{"priority":101}}`, "OutOfRange priority: want at most 100, found 101"},
		{`{"set":{"command":["ls"]}}`, "Fixed command: does not change once the job is submitted: it belongs to the program"},
		{`{"unset":["tenant"]}`, "Fixed tenant: does not change once the job is submitted: it comes from the identity of the submitter"},
		{`{"set":{"pritority":1}}`, "UnknownField set.pritority: no such field (did you mean priority?)"},
		{`{"unset":["pritority"]}`, `UnknownField unset: no such key: "pritority"`},
		{`{"set":{"min_devices":4,"max_devices":2}}`, "Contradiction"},
		{`{"set":{"devices":2,"max_devices":4}}`, "Contradiction devices: it stands for max_devices, which is also given"},
		{`{"set":{"memory":"1 apple"}}`, "InvalidAmount memory"},
		{`{"set":{"notify":[{"webhook":"ftp://x"}]}}`, "InvalidTarget notify[0].webhook"},
		{`{"set":{"priority":"high"}}`, "WrongType set.priority: want a whole number"},
		{`{"unset":[]}`, "NothingToChange"},
	} {
		after, e := ask(fmt.Sprint("bad", i), c.body)
		var found []string
		for _, r := range e.Refused {
			found = append(found, r.Code+" "+r.String())
		}
		if words := strings.Join(found, "\n"); !strings.Contains(words, c.want) || *after.Spec.Priority != 80 {
			t.Errorf("%s: %s, want %s", c.body, words, c.want)
		}
	}
	// A request while nobody answers, and one more that builds on it.
	stop()
	for _, body := range []string{`{"id":"x","set":{"labels":{"x":"1"}}}`, `{"id":"y","set":{"labels":{"y":"2"}},"unset":["labels.x"]}`} {
		b.send("yard.job.a.edit_requested.v1", body)
	}
	b.serve()
	if job, _ = b.edited("a", "y"); train.JoinLabels(job.Spec.Labels) != "lr=3,y=2" {
		t.Error(job.Spec.Labels)
	}
	b.caughtUp()
	accepted := 0
	for _, m := range b.messages(event.StreamJobs) {
		if d, err := event.Decode[event.EditDecided](m.Data); m.Parsed.Fact == event.FactEditDecided && err == nil && len(d.Refused) == 0 {
			accepted++
		}
	}
	if accepted != 3 {
		t.Errorf("%d answers say that the spec has changed, want 3", accepted)
	}
}

func TestWhatRunsKeepsItsDevices(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.send("yard.job.a.submitted.v1", b.spec())
	b.await("a", inState(train.StateQueued))
	executor := bustestConnect(t, b, "executor")
	if err := executor.Publish(b.ctx, event.JobFact("a", event.FactStarted, "attempt/1/started", event.Started{Attempt: 1, Node: "n", Devices: []train.DeviceID{"cpu:0"}})); err != nil {
		t.Fatal(err)
	}
	b.await("a", func(j train.Job) bool { return j.State.Active() })
	b.send("yard.job.a.edit_requested.v1", `{"id":"r","set":{"cores":1,"max_restarts":9}}`)
	_, e := b.edited("a", "r")
	if len(e.Refused) != 1 || e.Refused[0].Code != "NotWhileRunning" || e.Refused[0].Field != "cores" || !strings.Contains(e.Refused[0].Hint, "switchyard pause --wait a") {
		t.Errorf("%+v", e)
	}
	b.send("yard.job.a.edit_requested.v1", `{"id":"m","set":{"max_restarts":9,"devices":2}}`)
	if job, e := b.edited("a", "m"); len(e.Refused) > 0 || *job.Spec.MaxRestarts != 9 || job.Spec.MinDevices != 2 {
		t.Errorf("%+v", e)
	}
	// What has failed may be resumed with another limit.
	if err := executor.Publish(b.ctx, event.OnceFact("a", event.FactFailed, "end", event.Failed{Attempt: 1})); err != nil {
		t.Fatal(err)
	}
	b.await("a", inState(train.StateFailed))
	b.send("yard.job.a.edit_requested.v1", `{"id":"f","set":{"time_limit":"3h","cores":1}}`)
	if job, e := b.edited("a", "f"); len(e.Refused) > 0 || job.Spec.TimeLimit.String() != "3h" || job.State != train.StateFailed {
		t.Errorf("%s %+v", job.State, e)
	}
}

// An edit that arrives before the verdict about its job is answered after it, whatever the verdict.
func TestAnEditBeforeTheVerdict(t *testing.T) {
	b := newBench(t)
	b.send("yard.job.a.submitted.v1", b.spec())
	b.send("yard.job.a.edit_requested.v1", `{"id":"early","by":"ann","set":{"priority":80}}`)
	b.send("yard.job.a.edit_requested.v1", `{"id":"bad","set":{"pritority":1}}`)
	b.send("yard.job.r.submitted.v1", `{"name":"r"}`)
	b.send("yard.job.r.edit_requested.v1", `{"id":"late","set":{"priority":80}}`)
	b.serve()
	if job, e := b.edited("a", "early"); len(e.Refused) > 0 || e.By != "ann" || job.Spec.Priority == nil || *job.Spec.Priority != 80 {
		t.Errorf("%+v, %+v", job.Spec, e)
	}
	if _, e := b.edited("a", "bad"); len(e.Refused) != 1 || e.Refused[0].Code != "UnknownField" {
		t.Errorf("%+v", e)
	}
	if _, e := b.edited("r", "late"); len(e.Refused) != 1 || e.Refused[0].Code != "JobEnded" {
		t.Errorf("%+v", e)
	}
}

// A trial that has ended stays so, whatever anyone publishes: its experiment decides.
func TestATrialIsItsExperiments(t *testing.T) {
	b := newBench(t)
	b.serve()
	experiments, err := bus.OpenKV(b.ctx, b.bus, contract.Experiments)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := experiments.Swap(b.ctx, "search", contract.ExperimentRecord{ID: "search", Trials: []contract.Trial{{Job: "search-t0"}, {Job: "search-t1", Foreign: true}}}, 0); err != nil {
		t.Fatal(err)
	}
	executor := bustestConnect(t, b, "executor")
	for _, id := range []train.JobID{"search-t0", "search-t1"} {
		b.send(fmt.Sprintf("yard.job.%s.submitted.v1", id), b.spec())
		b.await(id, inState(train.StateQueued))
		if err := executor.Publish(b.ctx, event.OnceFact(id, event.FactFailed, "end", event.Failed{Attempt: 1})); err != nil {
			t.Fatal(err)
		}
		b.await(id, inState(train.StateFailed))
		b.send(fmt.Sprintf("yard.job.%s.wanted.v1", id), `{"state":"run"}`)
	}
	b.await("search-t1", inState(train.StateQueued)) // another client's job
	b.send("yard.job.search-t0.edit_requested.v1", `{"id":"x","set":{"priority":1}}`)
	job, e := b.edited("search-t0", "x")
	if job.State != train.StateFailed || job.Resumed != 0 || len(e.Refused) != 1 || e.Refused[0].Code != "IsTrial" {
		t.Errorf("%s, %+v", job.State, e)
	}
}
