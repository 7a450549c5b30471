package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// bench is a server with the test's own connections.
type bench struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // the deadline of one test
	url  string
	bus  *bus.Bus
	raw  *nats.Conn
	jobs *bus.KV[train.Job]
	root string
	// data is the data folder, with the key of signatures.
	data string
	// notify says how the service tells people.
	notify settings.Notify
	mlflow settings.MLflow
	// tracing is where traces go.
	tracing settings.Tracing
	// inspect follows a path in place of the service's own function.
	inspect func(string) fit.Path
}

// until is a context that ends with the test, or earlier.
func (b *bench) until() (context.Context, context.CancelFunc) { return context.WithCancel(b.ctx) }

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	server := bustest.Start(t)
	b := &bench{t: t, ctx: ctx, data: t.TempDir(), url: server.URL(), bus: bustest.Connect(t, server, "admission")}
	var err error
	if b.raw, err = nats.Connect(b.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.raw.Close)
	if b.jobs, err = bus.OpenKV(ctx, b.bus, contract.Jobs); err != nil {
		t.Fatal(err)
	}
	if b.root, err = filepath.EvalSymlinks(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.root, "train.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// serve runs the service until the returned function is called, which waits for its end.
func (b *bench) serve() (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	s := New(settings.Admission{AllowRoots: []string{b.root}, IdentityUser: "ann", IdentityTenant: "vision", Notify: b.notify, MLflow: b.mlflow, Tracing: b.tracing, MaxArray: 1000})
	if b.inspect != nil {
		s.inspect = b.inspect
	}
	common := run.Common{NATS: b.url, HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: b.data, Node: "n"}
	go func() { done <- run.Together(ctx, common, io.Discard, func(net.Addr) {}, s) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(stop)
	return stop
}

// send stores a message as any client of NATS would.
func (b *bench) send(subject, body string) {
	b.t.Helper()
	b.sendAs("", subject, body)
}

func (b *bench) sendAs(source, subject, body string) {
	b.t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	if source != "" {
		m.Header.Set(event.HeaderSource, source)
	}
	reply, err := b.raw.RequestMsgWithContext(b.ctx, m)
	if err != nil || strings.Contains(string(reply.Data), "error") {
		b.t.Fatalf("%s: %v %s", subject, err, reply.Data)
	}
}

// await returns the record once it satisfies wanted.
func (b *bench) await(id train.JobID, wanted func(train.Job) bool) train.Job {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var found train.Job
	last := train.Job{}
	_ = b.jobs.Watch(ctx, func(e bus.Entry[train.Job], _ bool) {
		if e.Key == string(id) {
			if last = e.Value; wanted(last) {
				found = last
				cancel()
			}
		}
	}, nil)
	if found.ID == "" {
		b.t.Fatalf("job %s never got there; last %+v", id, last)
	}
	return found
}

func inState(s train.State) func(train.Job) bool {
	return func(j train.Job) bool { return j.State == s }
}

// facts returns the stored facts of the jobs as `id fact`, in their order.
func (b *bench) facts() []string {
	b.t.Helper()
	var all []string
	for _, m := range b.messages(event.StreamJobs) {
		all = append(all, m.Parsed.ID+" "+m.Parsed.Fact)
	}
	return all
}

// messages returns all messages of a stream so far.
func (b *bench) messages(stream string) []bus.Message {
	b.t.Helper()
	last, err := b.bus.LastSequence(b.ctx, stream)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.firstMessages(stream, last)
}

// firstMessages waits until a stream has n messages.
func (b *bench) firstMessages(stream string, n uint64) []bus.Message {
	var all []bus.Message
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	_ = b.bus.Follow(ctx, stream, nil, 1, func(m bus.Message) {
		all = append(all, m)
		if m.Sequence >= n {
			cancel()
		}
	})
	return all
}

// caughtUp waits until the service has handled and acknowledged all facts of jobs.
func (b *bench) caughtUp() {
	b.t.Helper()
	for range tick.Every(b.ctx, 10*time.Millisecond) {
		if pending, err := b.bus.Pending(b.ctx, event.StreamJobs, "admission"); err == nil && pending == 0 {
			return
		}
	}
	b.t.Fatal("admission never caught up")
}

func (b *bench) spec() string {
	return fmt.Sprintf(`{"name":"mnist","script_path":"/custom/train.py","custom_dir":%q,"batch_size":64,"training_set_size":640,"max_epochs":3}`,
		b.root)
}

func TestASubmissionIsAdmitted(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.send("yard.job.one.submitted.v1", b.spec())
	job := b.await("one", inState(train.StateQueued))
	if job.Spec.User != "ann" || job.Spec.Tenant != "vision" || *job.Spec.Priority != train.DefaultPriority || job.AdmittedAt.IsZero() || job.SubmittedAt.IsZero() {
		t.Fatalf("record %+v", job)
	}
	b.send("yard.job.two.submitted.v1", b.spec())
	if job := b.await("two", inState(train.StateQueued)); job.Message != "waits for the next plan, position 2 in the queue" {
		t.Fatalf("message %q", job.Message)
	}
	// The facts of the other services continue its life.
	executor := bustestConnect(t, b, "executor")
	if err := executor.Publish(b.ctx, event.JobFact("one", event.FactStarted, "attempt/1/started", event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})); err != nil {
		t.Fatal(err)
	}
	b.await("one", inState(train.StateProfiling))
	b.send("yard.job.one.cancel_requested.v1", "")
	if job := b.await("one", func(j train.Job) bool { return j.CancelRequested }); job.State != train.StateProfiling {
		t.Fatalf("state %s", job.State)
	}
}

func bustestConnect(t *testing.T, b *bench, name string) *bus.Bus {
	t.Helper()
	other, err := bus.Connect(b.ctx, bus.Config{URL: b.url, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

func TestABadSubmissionIsRejectedWithEveryReason(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.send("yard.job.bad.submitted.v1", `{"name":"x","batchsize":64}`)
	job := b.await("bad", inState(train.StateRejected))
	if job.Reason != "UnknownField" || job.Hint != "did you mean batch_size?" {
		t.Fatalf("%s: %s (%s)", job.Reason, job.Message, job.Hint)
	}
	b.send("yard.job.many.submitted.v1",
		fmt.Sprintf(`{"name":"x","script_path":%q,"custom_dir":%q,"user":"bob","max_epochs":-1}`, b.root+"/train.py", b.root))
	job = b.await("many", inState(train.StateRejected))
	var codes []string
	for _, r := range job.Blockers {
		codes = append(codes, r.Code+" "+r.Field)
	}
	want := []string{"NotYourself user", "HostPath script_path", "OutOfRange max_epochs"}
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Fatal(diff)
	}
	b.send("yard.job.huge.submitted.v1", `{"name":"`+strings.Repeat("x", event.MaxBodyBytes)+`"}`)
	if job = b.await("huge", inState(train.StateRejected)); job.Reason != "TooLarge" {
		t.Fatalf("%s: %s", job.Reason, job.Message)
	}
	// Escaped, it would be six times as long.
	b.send("yard.job.escapes.submitted.v1", `{"name":"`+strings.Repeat("<", event.MaxBodyBytes-20)+`"}`)
	if job = b.await("escapes", inState(train.StateRejected)); job.Reason != "TooLarge" {
		t.Fatalf("%s: %s", job.Reason, job.Message)
	}
	b.send("yard.job.future.submitted.v2", b.spec())
	if job = b.await("future", inState(train.StateRejected)); job.Reason != "UnsupportedVersion" {
		t.Fatalf("%s: %s", job.Reason, job.Message)
	}
}

// A record may outlive the facts of its job, and its id is taken all the same.
func TestARecordWithoutFactsStands(t *testing.T) {
	b := newBench(t)
	old := train.Job{ID: "old", State: train.StateSucceeded, SpecHash: "of another", FinishedAt: time.Now()}
	if _, err := b.jobs.Swap(b.ctx, "old", old, 0); err != nil {
		t.Fatal(err)
	}
	b.serve()
	b.send("yard.job.old.submitted.v1", b.spec())
	b.send("yard.job.new.submitted.v1", b.spec())
	b.await("new", inState(train.StateQueued))
	b.caughtUp()
	var about []string
	for _, m := range b.messages(event.StreamJobs) {
		if m.Parsed.ID == "old" {
			about = append(about, m.Parsed.Fact)
		}
	}
	if diff := cmp.Diff([]string{event.FactSubmitted, event.FactConflicted}, about); diff != "" {
		t.Error(diff)
	}
}

func TestTheFirstSubmissionStands(t *testing.T) {
	b := newBench(t)
	b.serve()
	b.send("yard.job.a.submitted.v1", b.spec())
	b.send("yard.job.a.submitted.v1", "  "+b.spec())
	b.send("yard.job.a.submitted.v1", strings.Replace(b.spec(), "mnist", "other", 1))
	b.send("yard.job.a.submitted.v2", `{"v2": true}`)
	job := b.await("a", func(j train.Job) bool { return len(j.Warnings) > 0 })
	if job.Spec.Name != "mnist" || job.State != train.StateQueued {
		t.Fatalf("%s of %s", job.State, job.Spec.Name)
	}
	b.send("yard.job.z.submitted.v1", b.spec())
	b.await("z", inState(train.StateQueued))
	want := []string{
		"a submitted", "a submitted", "a submitted", "a submitted", "a admitted", "a conflicted", "a conflicted", "z submitted", "z admitted",
	}
	// Timing decides how many submissions are stored before the first answer; each gets its answer once.
	if diff := cmp.Diff(counts(want), counts(b.facts())); diff != "" {
		t.Fatal(diff)
	}
}

func counts(words []string) map[string]int {
	n := map[string]int{}
	for _, w := range words {
		n[w]++
	}
	return n
}

func TestPoisonDoesNotBlockTheStream(t *testing.T) {
	b := newBench(t)
	b.serve()
	executor := bustestConnect(t, b, "energy")
	b.send("yard.job.a.b.c.submitted.v1", b.spec())
	b.send("yard.job.never.cancel_requested.v1", "{}")
	b.send("yard.job.good.exploded.v1", "{}")
	b.send("yard.job.good.started.v7", "{}")
	b.send("yard.job.good.submitted.v1", b.spec())
	b.sendAs("executor", "yard.job.good.started.v1", `{"attempt":"one"}`)
	b.send("yard.job.good.succeeded.v1", `{"attempt":1,"epochs_done":3}`)
	if err := executor.Publish(b.ctx, event.JobFact("good", event.FactStarted, "attempt/1/started", event.Started{Attempt: 1})); err != nil {
		t.Fatal(err)
	}
	b.send("yard.job.last.submitted.v1", b.spec())
	b.await("last", inState(train.StateQueued))
	if job := b.await("good", inState(train.StateQueued)); job.Attempt != 0 {
		t.Fatalf("record %+v", job)
	}
	want := []string{"InvalidSubject", "UnknownJob", "UnknownFact", "UnknownFact", "InvalidBody", "WrongPublisher", "WrongPublisher"}
	var reasons []string
	for _, m := range b.firstMessages(event.StreamPoison, uint64(len(want))) {
		var p event.Poisoned
		if err := json.Unmarshal(m.Data, &p); err != nil {
			t.Fatal(err)
		}
		reason, _, _ := strings.Cut(strings.TrimPrefix(p.Reason, "poison: "), ":")
		reasons = append(reasons, reason)
	}
	if diff := cmp.Diff(counts(want), counts(reasons)); diff != "" { // jobs go side by side
		t.Fatal(diff)
	}
}

// TestASpoiledRecordIsSetAside puts invalid records into the register: facts about their jobs go to POISON, and all
// other jobs go on.
func TestASpoiledRecordIsSetAside(t *testing.T) {
	b := newBench(t)
	b.send("$KV.jobs.bad", "garbage{")
	stop := b.serve()
	b.send("yard.job.bad.submitted.v1", b.spec())
	b.send("yard.job.bad.cancel_requested.v1", "{}")
	b.send("yard.job.good.submitted.v1", b.spec())
	b.await("good", inState(train.StateQueued))
	b.caughtUp() // what is acknowledged does not come again
	b.send("$KV.jobs.good", `{"id":7}`)
	stop()
	b.serve()
	b.send("yard.job.good.cancel_requested.v1", "{}")
	b.send("yard.job.last.submitted.v1", b.spec())
	b.await("last", inState(train.StateQueued))
	want := []string{"yard.job.bad.submitted.v1", "yard.job.bad.cancel_requested.v1", "yard.job.good.cancel_requested.v1"}
	var subjects []string
	for _, m := range b.firstMessages(event.StreamPoison, uint64(len(want))) {
		var p event.Poisoned
		if err := json.Unmarshal(m.Data, &p); err != nil {
			t.Fatal(err)
		}
		subjects = append(subjects, p.Subject)
	}
	if diff := cmp.Diff(want, subjects); diff != "" {
		t.Fatal(diff)
	}
}

// TestACrashAnywhereIsHarmless passes each message to fresh handlers, as a consumer does after crashes: before
// anything, after the answer, after the record.
func TestACrashAnywhereIsHarmless(t *testing.T) {
	b := newBench(t)
	fresh := func() *handler {
		return newHandler(b.bus, b.jobs, fit.Identity{User: "ann", Tenant: "vision"}, looking(b.root), slog.New(slog.DiscardHandler), newMeters(nil))
	}
	// Meanwhile the machines changed, so that a new verdict would differ.
	changed := func() *handler {
		d := fresh()
		d.inventory.nodes["bare"] = train.Node{ID: "bare"}
		return d
	}
	handle := func(d *handler, m bus.Message) {
		t.Helper()
		if facts, err := d.handle(b.ctx, m); err != nil || len(facts) > 0 {
			t.Fatalf("%s: %v %v", m.Subject, facts, err)
		}
	}
	record := func(id string, state train.State, sequence uint64, changes int) bus.Entry[train.Job] {
		t.Helper()
		e, err := b.jobs.Get(b.ctx, id)
		if err != nil || e.Value.State != state || e.Value.LastSequence != sequence || len(e.Value.History) != changes {
			t.Fatalf("record %+v at %d, error %v", e.Value, e.Revision, err)
		}
		return e
	}
	b.send("yard.job.a.submitted.v1", b.spec())
	m := b.messages(event.StreamJobs)[0]
	handle(fresh(), m)
	whole := record("a", train.StateQueued, 2, 2)
	handle(changed(), m) // crashed between the record and the ack
	if err := b.jobs.Delete(b.ctx, "a", whole.Revision); err != nil {
		t.Fatal(err)
	}
	handle(changed(), m) // crashed between the answer and the record
	record("a", train.StateSubmitted, 1, 1)
	all := b.messages(event.StreamJobs)
	if len(all) != 2 || all[1].Parsed.Fact != event.FactAdmitted {
		t.Fatalf("%d facts, want a submission and its answer", len(all))
	}
	for range 2 {
		handle(fresh(), all[1])
	}
	e := record("a", train.StateQueued, 2, 2)
	if diff := cmp.Diff(whole.Value, e.Value); diff != "" {
		t.Fatal(diff)
	}
	// Everything from the beginning, as with a new consumer.
	d := fresh()
	for _, m := range all {
		handle(d, m)
	}
	if again := record("a", train.StateQueued, 2, 2); again.Revision != e.Revision {
		t.Fatalf("written again: %+v", again)
	}
	// An earlier version crashed between the record and the answer.
	b.send("yard.job.b.submitted.v1", b.spec())
	m = b.messages(event.StreamJobs)[2]
	if _, created, err := fresh().open(b.ctx, "b", m, read(m)); !created || err != nil {
		t.Fatal(created, err)
	}
	handle(fresh(), m)
	handle(fresh(), b.messages(event.StreamJobs)[3])
	record("b", train.StateQueued, 4, 2)
}

// TestAStaleRecordIsReadAgain lets two handlers take turns, as two processes with one durable consumer do.
func TestAStaleRecordIsReadAgain(t *testing.T) {
	b := newBench(t)
	handlers := [2]*handler{}
	for i := range handlers {
		handlers[i] = newHandler(b.bus, b.jobs, fit.Identity{User: "ann", Tenant: "vision"}, looking(b.root),
			slog.New(slog.DiscardHandler), newMeters(nil))
	}
	b.send("yard.job.a.submitted.v1", b.spec())
	for _, f := range []event.Fact{
		event.OnceFact("a", event.FactAdmitted, "admitted", event.Admitted{Spec: train.Spec{Name: "mnist", MaxEpochs: 3}}),
		event.JobFact("a", event.FactPlanned, "planned", event.Planned{Generation: 1}),
		event.JobFact("a", event.FactStarted, "attempt/1/started", event.Started{Attempt: 1}),
		event.JobFact("a", event.FactPreempted, "attempt/1/end", event.Preempted{Attempt: 1, Cause: train.StopRescale, EpochsDone: 1}),
		event.JobFact("a", event.FactPlanned, "planned again", event.Planned{Generation: 2}),
		event.JobFact("a", event.FactStarted, "attempt/2/started", event.Started{Attempt: 2, EpochsDone: 1}),
		event.JobFact("a", event.FactEpochEnded, "attempt/2/epoch/2", event.EpochEnded{Attempt: 2, EpochsDone: 2}),
		event.OnceFact("a", event.FactSucceeded, "end", event.Succeeded{Attempt: 2, EpochsDone: 3}),
	} {
		k, _ := event.Find(f.Subject)
		f.Source = k.Publisher
		if err := b.bus.Publish(b.ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range b.messages(event.StreamJobs) {
		if _, err := handlers[i/2%2].handle(b.ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	e, err := b.jobs.Get(b.ctx, "a")
	if err != nil || e.Value.State != train.StateSucceeded || e.Value.Rescales != 1 || e.Value.Restarts != 1 || e.Value.EpochsDone != 3 || e.Revision != 9 {
		t.Fatalf("record %+v at %d, error %v", e.Value, e.Revision, err)
	}
	for i, d := range handlers {
		if len(d.queue.waiting) > 1 {
			t.Errorf("handler %d has %d waiting", i, len(d.queue.waiting))
		}
	}
}

// TestAFlood sends two thousand submissions at once, with a restart in the middle: each is admitted once, at a possible
// place in the queue.
func TestAFlood(t *testing.T) {
	const n = 2000
	b := newBench(t)
	for i := range n {
		if err := b.raw.Publish(fmt.Sprintf("yard.job.flood-%d.submitted.v1", i), []byte(b.spec())); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.raw.FlushWithContext(b.ctx); err != nil {
		t.Fatal(err)
	}
	stop := b.serve()
	b.await("flood-700", func(train.Job) bool { return true })
	stop()
	b.serve()
	b.await(train.JobID(fmt.Sprintf("flood-%d", n-1)), inState(train.StateQueued))
	admitted, places := map[string]int{}, map[int]int{}
	for _, m := range b.messages(event.StreamJobs) {
		if m.Parsed.Fact != event.FactAdmitted {
			continue
		}
		body, err := event.Decode[event.Admitted](m.Data)
		if err != nil {
			t.Fatal(err)
		}
		admitted[m.Parsed.ID]++
		places[body.Position]++
		if body.Position < 1 || body.Position > n {
			t.Errorf("%s at place %d", m.Parsed.ID, body.Position)
		}
	}
	if len(admitted) != n {
		t.Fatalf("%d admitted, want %d", len(admitted), n)
	}
	for id, times := range admitted {
		if times != 1 {
			t.Errorf("%s admitted %d times", id, times)
		}
	}
	if len(places) < n*9/10 {
		t.Errorf("only %d different places of %d", len(places), n)
	}
}

func TestEveryWrongSettingIsNamed(t *testing.T) {
	if _, err := settings.Of(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	_, err := settings.Of("--allow-root", "here", "--identity-user", "", "--identity-tenant", "a\nb", "--keep-records", "1h")
	for _, flag := range []string{"--allow-root", "--identity-user", "--identity-tenant", "--keep-records"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not named in: %v", flag, err)
		}
	}
	if settings.MaxNameLength != fit.MaxNameLength {
		t.Errorf("names have %d characters in the configuration, %d in a job", settings.MaxNameLength, fit.MaxNameLength)
	}
}
