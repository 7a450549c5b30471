package system

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// attacked is a running Switchyard, with a job that trains until it is cancelled.
type attacked struct {
	*cluster
	// touched is a file that a forged job would make.
	touched string
}

func attack(t *testing.T) attacked {
	t.Helper()
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	c.submitSpec("victim", train.Spec{Command: []string{"sleep", "600"}})
	c.await("the victim runs", state("victim", train.StateRunning))
	return attacked{c, filepath.Join(c.dir, "touched")}
}

// as connects as a role, with a client that knows nothing of Switchyard.
func (a attacked) as(role string) *nats.Conn {
	a.t.Helper()
	nc, err := a.raw(role, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(nc.Close)
	return nc
}

// refuses sends a message and fails if the server takes it.
func (a attacked) refuses(nc *nats.Conn, m *nats.Msg) {
	a.t.Helper()
	if err := errors.Join(nc.PublishMsg(m), nc.Flush()); err != nil {
		a.t.Fatal(err)
	}
	if err := nc.LastError(); err == nil || !strings.Contains(err.Error(), `"`+m.Subject+`"`) {
		a.t.Errorf("the bus takes %s: %v", m.Subject, err)
	}
}

// unharmed fails unless the victim runs in its first attempt and nothing forged ran.
func (a attacked) unharmed() {
	a.t.Helper()
	// What is admitted and has run now was handled behind all that an attacker sent before.
	a.submitSpec("after", train.Spec{Command: []string{"true"}})
	jobs := a.await("a job after the attack", state("after", train.StateSucceeded))
	if v := jobs["victim"]; v.State != train.StateRunning || v.Attempt != 1 || v.CancelRequested {
		a.t.Errorf("the victim is %s in attempt %d: %s", v.State, v.Attempt, v.Message)
	}
	if _, err := os.Stat(a.touched); err == nil {
		a.t.Error("a forged job ran")
	}
}

// forged is a message that names a publisher.
func forged(subject, source, body string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	m.Header.Set(event.HeaderSource, source)
	return m
}

// Nobody speaks without a key, and what a key may not say is refused, whatever a header says.
func TestNobodyForgesFactsOrRecords(t *testing.T) {
	a := attack(t)
	if nc, err := a.raw(""); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a key: %v", err)
		nc.Close()
	}
	queued := fmt.Sprintf(`{"id":"ghost","state":"queued","spec":{"name":"ghost","command":["touch",%q],"max_devices":1}}`, a.touched)
	user, profiler, planner := a.as(identity.User), a.as("profiler"), a.as("planner")
	for _, nc := range []*nats.Conn{user, profiler, planner} {
		a.refuses(nc, forged("$KV.jobs.ghost", "admission", queued))
		a.refuses(nc, forged("$KV.attempts.victim", "executor", `{"job":"victim","phase":"running","pid":1}`))
		a.refuses(nc, forged("yard.job.victim.admitted.v1", "admission", `{"spec":{}}`))
		a.refuses(nc, forged("yard.job.victim.failed.v1", "executor", `{"attempt":1}`))
		a.refuses(nc, forged("yard.job.victim.epoch_ended.v1", "nodeagent", `{"attempt":1,"epochs_done":1}`))
		a.refuses(nc, forged("switchyard.executor.vm.terminal", "web", `{"job":"victim"}`))
	}
	a.refuses(user, forged("yard.job.victim.converged.v1", "profiler", `{"epochs_done":1}`))
	a.refuses(user, forged("yard.plan.main.decided.v1", "planner", `{}`))
	a.unharmed()
}

// What `up` writes, its socket and its keys are for its owner alone.
func TestWhatUpWritesIsItsOwners(t *testing.T) {
	a := attack(t)
	if info, err := os.Stat(a.data); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data folder has mode %s, %v", info.Mode(), err)
	}
	paths := []string{filepath.Join(a.data, api.SocketName), filepath.Join(a.dir, "context.json")}
	for _, role := range identity.Roles() {
		paths = append(paths, a.keys().File(role))
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info, err)
		}
	}
}

// A job that was written into the register, as only admission and the operator can, does not start: admission has not
// signed it.
func TestNothingUnsignedStarts(t *testing.T) {
	a := attack(t)
	jobs, err := bus.OpenKV(a.ctx, a.bus, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	victim, err := jobs.Get(a.ctx, "victim")
	if err != nil {
		t.Fatal(err)
	}
	ghost := train.Job{ID: "ghost", State: train.StateQueued, AdmittedAt: time.Now(), SubmittedAt: time.Now(), Spec: victim.Value.Spec}
	// The signature of another job.
	ghost.Spec.Name, ghost.Spec.Command, ghost.Seal = "ghost", []string{"touch", a.touched}, victim.Value.Seal
	if _, err := jobs.Swap(a.ctx, "ghost", ghost, 0); err != nil {
		t.Fatal(err)
	}
	a.eventually("wait for the refusal", func() error {
		m, err := a.bus.Last(a.ctx, event.StreamJobs, event.JobSubject("ghost", event.FactFailed))
		if err == nil && !strings.Contains(string(m.Data), "Unsigned") {
			t.Errorf("it failed otherwise: %s", m.Data)
		}
		return err
	})
	a.unharmed()
}

// A request to JetStream makes the server write its answer where the reply subject says. Users have no JetStream.
func TestNoReplySubjectSpeaksForAService(t *testing.T) {
	a := attack(t)
	user := a.as(identity.User)
	a.publish("yard.job.carrier.cancel_requested.v1", `{"attempt":1,"reason":{"message":"forged"}}`)
	bypass := nats.NewMsg("$JS.API.DIRECT.GET.JOBS.yard.job.carrier.cancel_requested.v1")
	bypass.Reply = "yard.job.victim.failed.v1"
	a.refuses(user, bypass)
	next := nats.NewMsg("$JS.API.CONSUMER.MSG.NEXT.JOBS.admission")
	next.Reply = "yard.job.victim.failed.v1"
	a.refuses(user, next)
	// The answer to what users may publish goes nowhere, either.
	if err := errors.Join(user.PublishRequest("yard.job.carrier.wanted.v1", "yard.job.victim.failed.v1", []byte(`{"state":"run"}`)), user.Flush()); err != nil {
		t.Fatal(err)
	}
	a.unharmed()
	if _, err := a.bus.Last(a.ctx, event.StreamJobs, event.JobSubject("victim", event.FactFailed)); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a forged fact is stored: %v", err)
	}
}

// A user of the bus asks for himself, whatever the header says. What he asks for without a name stays one command.
func TestNobodyAsksInAnothersName(t *testing.T) {
	a := attack(t)
	user := a.as(identity.User)
	ask := func(subject, body, by string) {
		t.Helper()
		m := nats.NewMsg(subject)
		m.Data = []byte(body)
		if by != "" {
			m.Header.Set(event.HeaderBy, by)
			m.Header.Set(event.HeaderProof, "web AAAA")
		}
		if _, err := user.RequestMsg(m, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	touch := fmt.Sprintf(`{"name":"x","command":["touch",%q]}`, a.touched)
	ask("yard.job.victim.cancel_requested.v1", `{}`, "root")
	ask("yard.job.forged.submitted.v1", touch, "ann")
	ask("yard.job.plain.submitted.v1", `{"name":"x","command":["true"]}`, "")
	a.unharmed()
	jobs := a.await("the others", func(jobs map[train.JobID]train.Job) bool {
		return jobs["plain"].State == train.StateSucceeded && jobs["forged"].State == train.StateRejected
	})
	if forged, plain := jobs["forged"], jobs["plain"]; !strings.Contains(forged.Message, "not proven") || plain.Spec.User != jobs["after"].Spec.User {
		t.Errorf("%s: %s; without a name it is %s's", forged.State, forged.Message, plain.Spec.User)
	}
	// What the body says of its sender does not count, either.
	ask("yard.job.victim.wanted.v1", `{"state":"held","by":"ann"}`, "")
	held := a.await("the hold", func(jobs map[train.JobID]train.Job) bool { return jobs["victim"].Wanted.State == train.WantHeld })
	if by := held["victim"].Wanted.By; by != bus.Stranger {
		t.Errorf("%q holds the victim", by)
	}
}

// A user of the bus forges each fact that anyone may publish in the name of root, and tries all others: the facts of
// services, their records and their questions. All are taken from the tables, so that a new subject is attacked, too.
func TestEverySubjectIsAttacked(t *testing.T) {
	a := attack(t)
	user := a.as(identity.User)
	open := map[string]bool{}
	for _, k := range event.Kinds() {
		m := forged(event.Subject{Entity: k.Entity, ID: "victim", Fact: k.Fact, Version: k.Version}.String(), k.Publisher, `{}`)
		m.Header.Set(event.HeaderBy, "root")
		m.Header.Set(event.HeaderProof, "web AAAA")
		if k.Publisher != event.Anyone {
			a.refuses(user, m)
			continue
		}
		open[k.Entity+" "+k.Fact] = true
		if _, err := user.RequestMsg(m, time.Minute); err != nil {
			t.Errorf("%s: %v", m.Subject, err)
		}
	}
	for _, b := range contract.Buckets() {
		a.refuses(user, forged("$KV."+b.Name+".victim", "operator", `{}`))
	}
	asked := 0
	for _, service := range identity.Services() {
		for _, pattern := range identity.ServicePermissions(service).Subscribe {
			if subject := strings.NewReplacer("*", "vm", ">", "x").Replace(pattern); strings.HasPrefix(subject, "switchyard.") {
				a.refuses(user, forged(subject, "web", `{"job":"victim"}`))
				asked++
			}
		}
	}
	if len(open) == 0 || asked == 0 {
		t.Errorf("%d facts of anyone, %d questions", len(open), asked)
	}
	a.unharmed()
	entries, err := audit.Read(a.ctx, a.bus, audit.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.ID == "victim" && e.Outcome == "refused" {
			delete(open, e.Entity+" "+e.Fact)
		}
	}
	for fact := range open {
		t.Errorf("%s in the name of root is not refused", fact)
	}
}

// The agent of another machine does its work from an account that can speak for its node alone.
func TestAnAgentWorksFromAnAccountOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.node = "far"
	const other = "other"
	if err := errors.Join(c.keys().AddNode(c.node), c.keys().AddNode(other)); err != nil {
		t.Fatal(err)
	}
	c.start("bus")
	c.connect()
	for _, s := range serviceNames() {
		c.start(s)
	}
	c.awaitNode()
	c.submit("trains", 3, 1)
	jobs := c.await("the job ends", func(jobs map[train.JobID]train.Job) bool { return jobs["trains"].State.Terminal() })
	if j := jobs["trains"]; j.State != train.StateSucceeded || j.EpochsDone != 3 {
		t.Errorf("%s after %d epochs: %s", j.State, j.EpochsDone, j.Message)
	}
	for name, subject := range map[string]event.Subject{
		event.StreamSamples: {Entity: "energy", ID: c.node, Fact: event.FactMeasured, Version: 1}, event.StreamJobs: event.JobSubject("trains", event.FactEpochEnded),
	} {
		c.eventually(subject.String(), func() error {
			_, err := c.bus.Last(c.ctx, name, subject)
			return err
		})
	}
	c.reportsOfOthers(other)
}

// reportsOfOthers has the agent of another node report about a job of this one, and say that it has ended.
func (c *cluster) reportsOfOthers(node string) {
	c.t.Helper()
	c.submitSpec("victim", train.Spec{Command: []string{"sleep", "600"}})
	c.await("the victim runs", state("victim", train.StateRunning))
	key, err := nats.NkeyOptionFromSeed(filepath.Join(string(c.keys()), "nodes", node, "node.nk"))
	if err != nil {
		c.t.Fatal(err)
	}
	nc, err := nats.Connect(c.url(), key, nats.CustomInboxPrefix(identity.InboxPrefix(identity.Node)), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		c.t.Fatal(err)
	}
	defer nc.Close()
	subjects := map[string]string{
		"yard.job.victim.epoch_ended.v1":        `{"attempt":1,"epochs_done":9}`,
		"yard.job.victim.checkpoint_written.v1": `{"attempt":1,"epochs_done":9,"path":"/tmp/x"}`,
		"yard.job.victim.outgrew.v1":            `{"attempt":1}`,
		"yard.sample.victim.stepped.v1":         `{"job":"victim","attempt":1,"step":9}`,
		"$KV.reports.victim.1":                  `{"job":"victim","attempt":1,"epochs_done":9,"spoke":true}`,
		// Nor about an attempt or a job that there is not, nor about one job under the name of another.
		"yard.job.victim.epoch_ended.v2": `{"attempt":1,"epochs_done":9}`, "yard.sample.nothing.stepped.v1": `{"attempt":1}`, "yard.sample.own.stepped.v1": `{"job":"victim","attempt":1}`,
	}
	for subject, body := range subjects {
		answer, err := nc.Request(subject, []byte(body), time.Minute)
		if err != nil || !strings.Contains(string(answer.Data), bus.ErrForeign.Error()) {
			c.t.Errorf("the agent of %s publishes %s: %v, %v", node, subject, answer, err)
		}
	}
	if _, err := nc.Request("yard.job.victim.failed.v1", []byte(`{"attempt":1}`), time.Second); err == nil || nc.LastError() == nil {
		c.t.Errorf("the agent of %s ends a job: %v", node, err)
	}
	jobs := c.await("the register", func(map[train.JobID]train.Job) bool { return true })
	if job := jobs["victim"]; job.State != train.StateRunning || job.EpochsDone != 0 || job.Checkpoint != "" {
		c.t.Errorf("the victim is %s after %d epochs", job.State, job.EpochsDone)
	}
	told := 0
	err = c.bus.Stored(c.ctx, event.StreamAccess, nil, time.Time{}, func(m bus.Message) {
		if r, err := event.Decode[event.AccessRefused](m.Data); err == nil && r.Person == "node."+node && subjects[r.Request] != "" {
			told++
		}
	})
	if err != nil || told != len(subjects) {
		c.t.Errorf("the audit trail has %d refusals of %d, %v", told, len(subjects), err)
	}
	if exit, out := c.command("events", "--audit"); exit != 0 || !strings.Contains(out, "node."+node) {
		c.t.Errorf("exit code %d: %s", exit, out)
	}
}

// Users of the bus submit a bounded number of jobs in a minute together; others are admitted meanwhile.
func TestAUserOfTheBusWhoSubmitsTooOftenIsRefused(t *testing.T) {
	a := attack(t)
	if exit, out := a.command("tenant", "set", "default", "--requests", "5"); exit != 0 {
		t.Fatalf("exit code %d: %s", exit, out)
	}
	// The bound acts on what comes behind it.
	a.await("a job after the bound", func(map[train.JobID]train.Job) bool {
		exit, out := a.command("tenant", "list", "-o", "json")
		return exit == 0 && strings.Contains(out, `"requests_per_minute": 5`)
	})
	user := a.as(identity.User)
	for i := range 20 {
		if _, err := user.Request(fmt.Sprintf("yard.job.flood-%d.submitted.v1", i), []byte(`{"name":"x","command":["true"]}`), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	jobs := a.await("the verdicts", func(jobs map[train.JobID]train.Job) bool { return jobs["flood-19"].State == train.StateRejected })
	refused := 0
	for id, j := range jobs {
		if strings.HasPrefix(string(id), "flood-") && j.State == train.StateRejected {
			refused++
		}
	}
	if last := jobs["flood-19"]; refused < 10 || refused > 15 || len(last.Blockers) != 1 || last.Blockers[0].Code != "TooManyRequests" {
		t.Errorf("%d of 20 are refused, the last with %+v", refused, last)
	}
	a.unharmed()
}

// What users of the bus ask of jobs counts, too: the cancellation of another's job that comes too often is set aside. A
// register that is folded again knows that.
func TestAUserOfTheBusWhoAsksTooOftenIsRefused(t *testing.T) {
	a := attack(t)
	if exit, out := a.command("tenant", "set", "default", "--requests", "1"); exit != 0 {
		t.Fatalf("exit code %d: %s", exit, out)
	}
	a.await("a job after the bound", func(map[train.JobID]train.Job) bool {
		exit, out := a.command("tenant", "list", "-o", "json")
		return exit == 0 && strings.Contains(out, `"requests_per_minute": 1`)
	})
	user := a.as(identity.User)
	flood := func(subject, stream string, n, refused int) {
		for range n {
			if err := user.Publish(subject, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		a.eventually("what came too often is set aside", func() error {
			set := 0
			err := a.bus.Stored(a.ctx, event.StreamPoison, nil, time.Time{}, func(m bus.Message) {
				if why, err := event.Decode[event.Poisoned](m.Data); err == nil && strings.Contains(why.Reason, "TooManyRequests") && why.Stream == stream {
					set++
				}
			})
			if err == nil && set < refused {
				err = fmt.Errorf("%d of %d on %s, want at least %d", set, n, stream, refused)
			}
			return err
		})
	}
	flood("yard.job.nobody.cancel_requested.v1", event.StreamJobs, 20, 15)
	// The next request is allowed a minute after the first.
	if _, err := user.Request("yard.job.victim.cancel_requested.v1", []byte(`{}`), time.Minute); err != nil {
		t.Fatal(err)
	}
	flood("yard.tune.nobody.stop_requested.v1", event.StreamTune, access.RequestsPerMinute+300, 50)
	a.unharmed()
	if exit, out := a.command("repair", "--check"); exit != 0 {
		t.Errorf("register and stream differ: %s", out)
	}
}

// A user cannot keep a fact of a service from being stored by taking its key.
func TestNoUserTakesTheKeyOfAFact(t *testing.T) {
	a := attack(t)
	taken := nats.NewMsg("yard.job.carrier.cancel_requested.v1")
	taken.Data = []byte(`{}`)
	taken.Header.Set(jetstream.MsgIDHeader, "job/after/admitted")
	if _, err := a.as(identity.User).RequestMsg(taken, time.Minute); err != nil {
		t.Fatal(err)
	}
	a.unharmed()
}

// Streams are the operator's: no other key deletes, empties or changes one.
func TestOnlyTheOperatorChangesStreams(t *testing.T) {
	a := attack(t)
	for _, role := range append(identity.Services(), identity.User) {
		nc := a.as(role)
		for _, request := range []string{"STREAM.DELETE.KV_attempts", "STREAM.PURGE.JOBS", "STREAM.CREATE.X", "STREAM.UPDATE.JOBS", "STREAM.RESTORE.JOBS", "STREAM.SNAPSHOT.JOBS", "STREAM.MSG.DELETE.JOBS"} {
			a.refuses(nc, forged("$JS.API."+request, "up", `{}`))
		}
	}
	a.unharmed()
}

// Connections that say nothing, and all that users may open, leave the service as it is.
func TestConnectionsDoNotTakeTheServiceAway(t *testing.T) {
	a := attack(t)
	const flood, users = 1000, 300
	silent := make([]net.Conn, flood)
	for i := range silent {
		c, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", strings.TrimPrefix(a.url(), "nats://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent[i] = c
	}
	refused := 0
	for range users {
		nc, err := a.raw(identity.User, nats.Timeout(time.Minute))
		if err != nil {
			refused++
			continue
		}
		defer nc.Close()
	}
	if refused == 0 {
		t.Errorf("users have %d connections at once", users)
	}
	a.unharmed()
	for _, c := range silent {
		if _, err := io.Copy(io.Discard, c); err != nil { // until the server hangs up
			t.Error(err)
		}
	}
}
