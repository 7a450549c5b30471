package bus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestMain(m *testing.M) {
	bustest.Parallel(6)
	os.Exit(m.Run())
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestOnceFactIsStoredOnce(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "admission")
	for range 3 {
		if err := b.Publish(ctx, event.OnceFact("j1", event.FactAdmitted, "admitted", event.Admitted{Position: 1})); err != nil {
			t.Fatal(err)
		}
	}
	// A second fact with another key is not stored either.
	if err := b.Publish(ctx, event.OnceFact("j1", event.FactAdmitted, "other", event.Admitted{Position: 2})); err != nil {
		t.Fatal(err)
	}
	last, err := b.LastSequence(ctx, event.StreamJobs)
	if err != nil || last != 1 {
		t.Fatalf("last sequence %d, error %v: want 1", last, err)
	}
}

func TestPublishAfterDetectsTheOtherPlanner(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "planner")
	plan := func(generation int) event.Fact {
		return event.Fact{
			Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1},
			Key:     fmt.Sprintf("plan/%d", generation), Body: event.PlanDecided{Plan: train.Plan{Generation: uint64(generation)}},
		}
	}
	first, err := b.PublishAfter(ctx, plan(1), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.PublishAfter(ctx, plan(2), 0); !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("stale append: %v, want ErrConflict", err)
	}
	if _, err := b.PublishAfter(ctx, plan(2), first); err != nil {
		t.Fatal(err)
	}
	m, err := b.Last(ctx, event.StreamPlans, plan(0).Subject)
	if err != nil || m.Key != "plan/2" {
		t.Fatalf("last plan %q, error %v", m.Key, err)
	}
}

func TestPublishNextComparesAllFactsOfAJob(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "admission")
	publish := func(f event.Fact) uint64 {
		t.Helper()
		if err := b.Publish(ctx, f); err != nil {
			t.Fatal(err)
		}
		m, err := b.Last(ctx, event.StreamJobs, f.Subject)
		if err != nil {
			t.Fatal(err)
		}
		return m.Sequence
	}
	submitted := publish(event.JobFact("a", event.FactSubmitted, "submitted", event.Submitted{}))
	publish(event.JobFact("b", event.FactSubmitted, "submitted", event.Submitted{})) // of another job
	admitted := event.OnceFact("a", event.FactAdmitted, "admitted", event.Admitted{})
	if sequence, err := b.PublishNext(ctx, admitted, submitted); err != nil || sequence != submitted+2 {
		t.Fatalf("stored as %d: %v", sequence, err)
	}
	for _, again := range []event.Fact{admitted, event.OnceFact("a", event.FactRejected, "rejected", event.Rejected{})} {
		if _, err := b.PublishNext(ctx, again, submitted); !errors.Is(err, bus.ErrConflict) {
			t.Errorf("a second answer %s: %v, want ErrConflict", again.Subject, err)
		}
	}
	last := publish(event.JobFact("b", event.FactCancelRequested, "cancel", event.CancelRequested{}))
	if _, err := b.PublishNext(ctx, event.OnceFact("b", event.FactAdmitted, "admitted", event.Admitted{}), last-2); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("an answer behind a request: %v, want ErrConflict", err)
	}
}

func TestStoredIsReadToItsEnd(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "executor")
	read := func(since time.Time, filters ...string) (keys []string) {
		t.Helper()
		if err := b.Stored(ctx, event.StreamJobs, filters, since, func(m bus.Message) { keys = append(keys, m.Key) }); err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if keys := read(time.Time{}); len(keys) != 0 {
		t.Fatalf("read %v of an empty stream", keys)
	}
	for i := range 300 {
		fact := event.FactSucceeded
		if i%2 == 1 {
			fact = event.FactStarted
		}
		if err := b.Publish(ctx, event.JobFact("j", fact, fmt.Sprintf("key/%d", i), event.Succeeded{Attempt: i})); err != nil {
			t.Fatal(err)
		}
	}
	if keys := read(time.Time{}); len(keys) != 300 || keys[299] != "job/j/key/299" {
		t.Errorf("read %d messages", len(keys))
	}
	// The newest message of the stream is on another subject.
	if keys := read(time.Time{}, event.JobSubject("j", event.FactSucceeded).String()); len(keys) != 150 || keys[149] != "job/j/key/298" {
		t.Errorf("read %d messages of one subject", len(keys))
	}
	var newest []string
	if err := b.Newest(ctx, event.StreamJobs, []string{"yard.job.*.*.v1"}, func(m bus.Message) { newest = append(newest, m.Key) }); err != nil || !slices.Equal(newest, []string{"job/j/key/298", "job/j/key/299"}) {
		t.Errorf("the newest message of each subject: %v, %v", newest, err)
	}
	at, err := b.At(ctx, event.StreamJobs, 250)
	if err != nil || at.Key != "job/j/key/249" {
		t.Fatalf("message 250 is %q: %v", at.Key, err)
	}
	if keys := read(at.Stored); len(keys) != 51 || keys[0] != at.Key {
		t.Errorf("read %d messages since the 250th", len(keys))
	}
	if _, err := b.At(ctx, event.StreamJobs, 301); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("message 301: %v, want ErrNotFound", err)
	}
}

func TestPoisonIsSetAsideAndTheStreamGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	b := bustest.Connect(t, bustest.Start(t), "admission")
	nc, err := nats.Connect(urlOf(t, b))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{"yard.job.a.b.submitted.v1", "yard.job.panic.submitted.v1", "yard.job.good.submitted.v1"} {
		if _, err := nc.Request(subject, []byte("{"), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(chan string, 10)
	done := make(chan error, 1)
	go func() {
		done <- b.Consume(ctx, bus.Consumer{Name: "admission", Stream: event.StreamJobs, Handle: func(_ context.Context, m bus.Message) ([]event.Fact, error) {
			if m.ParseErr != nil {
				return nil, fmt.Errorf("%w: %w", bus.ErrPoison, m.ParseErr)
			}
			if m.Parsed.ID == "panic" {
				panic("a handler's fault")
			}
			seen <- m.Parsed.ID
			return nil, nil
		}})
	}()
	if id := <-seen; id != "good" {
		t.Fatalf("saw %q", id)
	}
	reasons := make(chan string, 10)
	follow, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = b.Follow(follow, event.StreamPoison, nil, 1, func(m bus.Message) { reasons <- string(m.Data) })
	}()
	for range 2 {
		if r := <-reasons; r == "" {
			t.Fatal("poison without a reason")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestAFailingHandlerSeesTheMessageAgainInOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	b := bustest.Connect(t, bustest.Start(t), "admission")
	for _, id := range []train.JobID{"a", "b"} {
		if err := b.Publish(ctx, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{})); err != nil {
			t.Fatal(err)
		}
	}
	seen, failed := make(chan string, 10), false
	go func() {
		_ = b.Consume(ctx, bus.Consumer{Name: "admission", Stream: event.StreamJobs, Handle: func(_ context.Context, m bus.Message) ([]event.Fact, error) {
			if !failed {
				failed = true
				return nil, errors.New("the record cannot be written now")
			}
			seen <- m.Parsed.ID
			return nil, nil
		}})
	}()
	if first, second := <-seen, <-seen; first != "a" || second != "b" {
		t.Fatalf("order %s %s, want a b", first, second)
	}
}

func TestModifyRetriesAfterConflicts(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "x")
	kv, err := bus.OpenKV(ctx, b, contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	intruded := false
	e, err := kv.Modify(ctx, "j.1", func(r *train.AttemptReport) (bool, error) {
		if !intruded {
			intruded = true
			if _, err := kv.Swap(ctx, "j.1", train.AttemptReport{Job: "j", Attempt: 1, EpochsDone: 7}, 0); err != nil {
				t.Fatal(err)
			}
		}
		r.Spoke = true
		return true, nil
	})
	if err != nil || e.Value.EpochsDone != 7 || !e.Value.Spoke {
		t.Fatalf("%+v, %v: want both changes", e.Value, err)
	}
	if _, err := kv.Swap(ctx, "j.1", train.AttemptReport{}, e.Revision-1); !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("stale swap: %v, want ErrConflict", err)
	}
}

func TestRubbishInARecordIsPoisonOrReplaced(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "x")
	kv, err := bus.OpenKV(ctx, b, contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(urlOf(t, b))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Request("$KV.reports.j.1", []byte("garbage{"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(ctx, "j.1"); !errors.Is(err, bus.ErrPoison) || e.Revision == 0 {
		t.Errorf("read: %+v, %v", e, err)
	}
	if _, err := kv.Modify(ctx, "j.1", func(r *train.AttemptReport) (bool, error) {
		r.Job, r.Attempt, r.EpochsDone = "j", 1, 1
		return true, nil
	}); err != nil {
		t.Error(err)
	}
	if e, err := kv.Get(ctx, "j.1"); err != nil || e.Value.EpochsDone != 1 {
		t.Errorf("made again: %+v, %v", e, err)
	}
	large, err := bus.OpenKV(ctx, b, contract.Bucket[string](contract.Experiments))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := large.Swap(ctx, "x", strings.Repeat("x", event.MaxStoredBytes+64<<10), 0); !errors.Is(err, bus.ErrPoison) {
		t.Errorf("a value that is too large: %v, want ErrPoison", err)
	}
	if _, err := kv.Swap(ctx, "../x", train.AttemptReport{}, 0); !errors.Is(err, bus.ErrPoison) {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestEverythingComesBackWithTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	dir := t.TempDir()
	s, err := busserver.Start(busserver.Options{Open: true, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	port := s.Port()
	b := bustest.Connect(t, s, "x")
	kv, err := bus.OpenKV(ctx, b, contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	values, facts := make(chan int, 100), make(chan string, 100)
	go func() {
		_ = kv.Watch(ctx, func(e bus.Entry[train.AttemptReport], _ bool) { values <- e.Value.EpochsDone }, nil)
	}()
	go func() {
		_ = b.Consume(ctx, bus.Consumer{Name: "admission", Stream: event.StreamJobs, Handle: func(_ context.Context, m bus.Message) ([]event.Fact, error) {
			facts <- m.Parsed.ID
			return nil, nil
		}})
	}()
	if _, err := kv.Swap(ctx, "k.1", train.AttemptReport{Job: "k", Attempt: 1, EpochsDone: 1}, 0); err != nil {
		t.Fatal(err)
	}
	if v := <-values; v != 1 {
		t.Fatalf("value %d", v)
	}
	s.Stop()
	if s, err = busserver.Start(busserver.Options{Open: true, Dir: dir, Port: port}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	// Publish retries by itself until the server is back.
	if err := b.Publish(ctx, event.OnceFact("late", event.FactSubmitted, "submitted", event.Submitted{})); err != nil {
		t.Fatal(err)
	}
	if id := <-facts; id != "late" {
		t.Fatalf("fact %q", id)
	}
	if _, err := kv.Modify(ctx, "k.1", func(r *train.AttemptReport) (bool, error) { r.EpochsDone = 2; return true, nil }); err != nil {
		t.Fatal(err)
	}
	for v := range values {
		if v == 2 {
			return
		}
	}
}

func urlOf(t *testing.T, b *bus.Bus) string {
	t.Helper()
	return b.URL()
}

// The marker of a deleted key expires by itself, also in a bucket created before markers did.
func TestMarkersOfDeletedKeysRunOut(t *testing.T) {
	ctx := within(t)
	server := bustest.Start(t)
	js := bustest.JetStream(t, server.URL())
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: string(contract.Reports), History: 1, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	kv, err := bus.OpenKV[train.AttemptReport](ctx, bustest.Connect(t, server, "x"), contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	revision, err := kv.Swap(ctx, "j.1", train.AttemptReport{Job: "j", Attempt: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(ctx, "j.1", revision+1); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("another revision deleted: %v, want ErrConflict", err)
	}
	if err := kv.Delete(ctx, "j.1", revision); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "KV_"+string(contract.Reports))
	if err != nil {
		t.Fatal(err)
	}
	marker, err := stream.GetLastMsgForSubject(ctx, "$KV.reports.j.1")
	if err != nil || marker.Header.Get(jetstream.MsgTTLHeader) == "" {
		t.Errorf("marker %+v, %v: it stays for ever", marker, err)
	}
	seen := make(chan bool, 1)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	if err := kv.Watch(watch, func(_ bus.Entry[train.AttemptReport], deleted bool) { seen <- deleted }, stop); err != nil || !<-seen {
		t.Errorf("%v: the watch does not tell of the deletion", err)
	}
	if e, err := kv.Get(ctx, "j.1"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("after the deletion: %+v, %v", e, err)
	}
	if _, err := kv.Swap(ctx, "j.1", train.AttemptReport{Job: "j", Attempt: 1}, 0); err != nil {
		t.Errorf("made again: %v", err)
	}
}

// The server has room for a thousand consumers of a stream: repeated reads must not use it up.
func TestReadersLeaveNoConsumersBehind(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "admission")
	kv, err := bus.OpenKV(ctx, b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Put(ctx, "a", train.Job{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(ctx, event.OnceFact("a", event.FactAdmitted, "admitted", event.Admitted{})); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if entries, err := kv.List(ctx); err != nil || len(entries) != 1 {
			t.Fatalf("%d entries: %v", len(entries), err)
		}
		if err := b.Stored(ctx, event.StreamJobs, nil, time.Time{}, func(bus.Message) {}); err != nil {
			t.Fatal(err)
		}
		short, stop := context.WithCancel(ctx)
		if err := b.Follow(short, event.StreamJobs, nil, 1, func(bus.Message) { stop() }); err != nil {
			t.Fatal(err)
		}
	}
	js := bustest.JetStream(t, b.URL())
	for _, name := range []string{"KV_" + string(contract.Jobs), event.StreamJobs} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Consumers; n != 0 {
			t.Errorf("%s has %d consumers left", name, n)
		}
	}
}

func TestPutWritesWhatIsNew(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "test")
	kv, err := bus.OpenKV(within(t), b, contract.Accounts)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{1, 1, 2} {
		if err := kv.Put(within(t), "job.a", train.Account{Job: "a", Epochs: i / 2}); err != nil {
			t.Fatal(err)
		}
		if e, err := kv.Get(within(t), "job.a"); err != nil || e.Revision != want || e.Value.Epochs != i/2 {
			t.Errorf("put %d: %d epochs at revision %d, %v; want revision %d", i, e.Value.Epochs, e.Revision, err, want)
		}
	}
}

// A process that alone writes a record reads it once. It notices what happens to the record all the same.
func TestTheWriterOfARecordReadsItOnce(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "test")
	kv, err := bus.OpenKV(ctx, b, contract.Accounts)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(urlOf(t, b))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	reads, err := nc.SubscribeSync("$JS.API.DIRECT.GET.KV_ledger.>")
	if err = errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	own := kv.Own()
	epochs := 0
	// put stores a record, the same as before unless its epochs are new, and returns how often it was read for that.
	put := func(of int) (seen int) {
		t.Helper()
		epochs = of
		if err := own.Put(ctx, "job.a", train.Account{Job: "a", Epochs: of}); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := reads.NextMsg(50 * time.Millisecond); err != nil {
				return seen
			}
			seen++
		}
	}
	there := func() bus.Entry[train.Account] {
		t.Helper()
		e, err := kv.Get(ctx, "job.a")
		if err != nil || e.Value.Epochs != epochs {
			t.Fatalf("%+v, %v: want %d epochs", e, err, epochs)
		}
		if _, err := reads.NextMsg(time.Second); err != nil {
			t.Fatal(err) // that read itself
		}
		return e
	}
	for i, want := range []int{1, 0, 0} {
		if got := put(i); got != want {
			t.Errorf("write %d: %d reads, want %d", i, got, want)
		}
	}
	if err := kv.Delete(ctx, "job.a", there().Revision); err != nil {
		t.Fatal(err)
	}
	put(2)
	there() // the same as before, made again
	if _, err := kv.Swap(ctx, "job.a", train.Account{Job: "a", Epochs: 9}, there().Revision); err != nil {
		t.Fatal(err)
	}
	put(3)
	there()
	if got := put(4); got != 0 {
		t.Errorf("%d reads after all that, want none", got)
	}
}

// A record is only that of its own key, and every id in a key has the form of an id: what services read here becomes
// paths and process numbers. Whatever else is there is refused and reported, and the rest is still read.
func TestARecordOfAnotherKeyIsRefused(t *testing.T) {
	ctx := within(t)
	b := bustest.Connect(t, bustest.Start(t), "x")
	kv, err := bus.OpenKV(ctx, b, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(urlOf(t, b))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	hostile := map[string]string{
		"x": `{"job":"../../../userb/x","number":1}`, "ghost": `{"job":"victim","number":1,"pid":1}`, "nobody": `{"number":1}`,
		"a.b": `{"job":"a.b","number":1}`, "-rf": `{"job":"-rf","number":1}`,
	}
	for key, body := range hostile {
		if _, err := nc.Request("$KV.attempts."+key, []byte(body), time.Minute); err != nil {
			t.Fatal(err)
		}
		if e, err := kv.Get(ctx, key); err == nil || e.Value.Job != "" {
			t.Errorf("%s: %+v, %v", key, e, err)
		}
	}
	if _, err := kv.Swap(ctx, "good", train.Attempt{Job: "good", Number: 1}, 0); err != nil {
		t.Fatal(err)
	}
	if all, err := kv.List(ctx); err != nil || len(all) != 1 || all[0].Value.Job != "good" {
		t.Errorf("listed: %+v, %v", all, err)
	}
}

// Every bucket refuses keys that are paths, and a record without identity in a bucket whose records have one.
func TestNoBucketTakesAPathForAKey(t *testing.T) {
	for _, key := range []string{"../../../x", "..", "/etc/passwd", "x/../y", ".x", "a b", "", strings.Repeat("x", 201)} {
		for _, err := range []error{
			contract.Jobs.Reader().Decode(key, []byte("{}"), new(train.Job)), contract.Nodes.Reader().Decode(key, []byte("{}"), new(train.Node)),
			contract.Notices.Reader().Decode(key, []byte("{}"), new(train.Notices)), contract.Hours.Reader().Decode(key, []byte("{}"), new(contract.Book)),
			contract.SeriesJobs.Reader().Decode("series-job."+key, []byte("{}"), new(contract.JobSeries)), contract.Groups.Reader().Decode("t61."+key, []byte("{}"), new(contract.Group)),
			contract.Links.Reader().Decode(key, []byte(`{"id":"`+key+`"}`), new(train.Link)), contract.Leases.Reader().Decode(key, []byte("{}"), new(contract.Lease)),
			contract.Profiles.Reader().Decode(key, []byte("{}"), new(contract.GroundTruth)),
		} {
			if !errors.Is(err, contract.ErrForeign) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	}
}

// BenchmarkReadOfARecord reads a record from a single server, directly as KV.Get does there, and as in a cluster.
func BenchmarkReadOfARecord(b *testing.B) {
	conn := bustest.Connect(b, bustest.Start(b), "test")
	kv, err := bus.OpenKV(b.Context(), conn, contract.Accounts)
	if err != nil {
		b.Fatal(err)
	}
	if err := kv.Put(b.Context(), "job.a", train.Account{Job: "a", Epochs: 1}); err != nil {
		b.Fatal(err)
	}
	nc, err := nats.Connect(conn.URL())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	messages, err := nc.JetStream()
	if err != nil {
		b.Fatal(err)
	}
	for name, options := range map[string][]nats.JSOpt{"direct": {nats.DirectGet()}, "by-the-leader": nil} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := messages.GetLastMsg("KV_ledger", "$KV.ledger.job.a", options...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
