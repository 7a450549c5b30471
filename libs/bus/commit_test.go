package bus_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestWritesThatGoTogetherAreAsGoodAsAlone: of many writers at once each gets the revision of its own record, and a
// writer whose revision is old is refused, and spoils it for nobody else.
func TestWritesThatGoTogetherAreAsGoodAsAlone(t *testing.T) {
	ctx, b := within(t), bustest.Connect(t, bustest.Start(t), "x")
	kv, err := bus.OpenKV(ctx, b, contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	const writers, rounds = 64, 10
	side := pool.New().WithErrors()
	for w := range writers {
		side.Go(func() error {
			job, revision := train.JobID(fmt.Sprint("j", w)), uint64(0)
			key := contract.ReportKey(job, 1)
			for n := range rounds {
				next, err := kv.Swap(ctx, key, train.AttemptReport{Job: job, Attempt: 1, EpochsDone: n}, revision)
				if err != nil {
					return err
				}
				if _, err := kv.Swap(ctx, key, train.AttemptReport{EpochsDone: -1}, revision); !errors.Is(err, bus.ErrConflict) {
					return fmt.Errorf("a stale write: %w", err)
				}
				if e, err := kv.Get(ctx, key); err != nil || e.Revision != next || e.Value.EpochsDone != n {
					return fmt.Errorf("%+v, %w: want epoch %d at revision %d", e, err, n, next)
				}
				revision = next
			}
			return nil
		})
	}
	if err := side.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestFactsThatGoTogetherAreStoredOnce: facts of many publishers are all stored, and one that comes again is not.
func TestFactsThatGoTogetherAreStoredOnce(t *testing.T) {
	ctx, b := within(t), bustest.Connect(t, bustest.Start(t), "x")
	const publishers, repeats = 100, 3
	side := pool.New().WithErrors()
	for p := range publishers {
		side.Go(func() error {
			id := train.JobID(fmt.Sprint("j", p))
			for range repeats {
				err := b.Publish(ctx,
					event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{}),
					event.JobFact(id, event.FactCancelRequested, "cancel", event.CancelRequested{}))
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := side.Wait(); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	if err := b.Stored(ctx, event.StreamJobs, nil, time.Time{}, func(m bus.Message) { count[m.Parsed.ID+" "+m.Parsed.Fact]++ }); err != nil {
		t.Fatal(err)
	}
	for fact, n := range count {
		if n != 1 {
			t.Errorf("%s is stored %d times", fact, n)
		}
	}
	if len(count) != 2*publishers {
		t.Errorf("%d facts, want %d", len(count), 2*publishers)
	}
}

// heldTogether publishes facts that wait until all are there, and returns the error of each.
func heldTogether(ctx context.Context, b *bus.Bus, stream string, facts ...event.Fact) []error {
	var returned atomic.Int64
	waiting, release := bus.HoldWrites(b, stream)
	errs := make([]error, len(facts))
	side := pool.New()
	for i, f := range facts {
		side.Go(func() {
			errs[i] = b.Publish(ctx, f)
			returned.Add(1)
		})
	}
	until(ctx, func() (callers, messages int) {
		callers, messages = waiting()
		return callers + int(returned.Load()), messages
	}, len(facts))
	release()
	side.Wait()
	return errs
}

func until(ctx context.Context, waiting func() (callers, messages int), n int) {
	for range tick.Every(ctx, time.Millisecond) {
		if callers, _ := waiting(); callers == n {
			return
		}
	}
}

// TestWhatIsStoredAlreadySpoilsNoBatch: if the server refuses a batch, the messages that it would take are stored
// together all the same, and each caller gets what is true of its own message.
func TestWhatIsStoredAlreadySpoilsNoBatch(t *testing.T) {
	s := bustest.Start(t)
	ctx, b := within(t), bustest.Connect(t, s, "x")
	cancelled := func(id string) event.Fact {
		return event.JobFact(train.JobID(id), event.FactCancelRequested, "cancel", event.CancelRequested{})
	}
	stolen := cancelled("thief")
	stolen.Key = cancelled("new-0").Key
	before := []event.Fact{cancelled("old-0"), cancelled("old-1"), event.OnceFact("old-2", event.FactSubmitted, "submitted", event.Submitted{}), stolen}
	if err := b.Publish(ctx, before...); err != nil {
		t.Fatal(err)
	}
	together := before[:3:3]
	const fresh = 40
	for i := range fresh {
		together = append(together, cancelled(fmt.Sprintf("new-%d", i)))
	}
	for i, err := range heldTogether(ctx, b, event.StreamJobs, together...) {
		if err != nil {
			t.Errorf("%s: %v", together[i].Subject, err)
		}
	}
	stream, err := bustest.JetStream(t, s.URL()).Stream(ctx, event.StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(len(before) + fresh)
	if info := stream.CachedInfo(); info.State.LastSeq != last {
		t.Errorf("%d messages are stored, want %d", info.State.LastSeq, last)
	}
	batches := map[string]int{}
	for n := uint64(len(before)) + 1; n <= last; n++ {
		m, err := stream.GetMsg(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		batches[m.Header.Get("Nats-Batch-Id")]++
	}
	// The one whose key was taken is stored without a key, on its own.
	if len(batches) != 2 || batches[""] != 1 {
		t.Errorf("%d new messages went in batches %v, want one alone and one batch", fresh, batches)
	}
}

// TestTooLargeAMessageSpoilsNoBatch: only its own publisher gets the error.
func TestTooLargeAMessageSpoilsNoBatch(t *testing.T) {
	ctx, dir := within(t), t.TempDir()
	s := bustest.StartFile(t, filepath.Join(dir, "nats.conf"), fmt.Sprintf("port: -1\nmax_payload: 64KB\njetstream { store_dir: %q, max_file_store: 1000000000000000 }", dir))
	b := bustest.ConnectWith(t, bus.Config{URL: s.ClientURL(), Name: "x"})
	noise := make([]byte, 80<<10)
	rand.NewChaCha8([32]byte{}).Read(noise) //nolint:errcheck // it never fails
	facts := []event.Fact{event.JobFact("huge", event.FactCancelRequested, "cancel", event.CancelRequested{Reason: hex.EncodeToString(noise)})}
	for i := range 10 {
		facts = append(facts, event.JobFact(train.JobID(fmt.Sprintf("j%d", i)), event.FactCancelRequested, "cancel", event.CancelRequested{}))
	}
	for i, err := range heldTogether(ctx, b, event.StreamJobs, facts...) {
		if i == 0 != errors.Is(err, nats.ErrMaxPayload) || i > 0 && err != nil {
			t.Errorf("%s: %v", facts[i].Subject, err)
		}
	}
}

// TestARepeatedFactJoinsTheFirst: while a fact waits, the same one again is no second message; and a fact for which
// nobody waits any more is not written.
func TestARepeatedFactJoinsTheFirst(t *testing.T) {
	ctx, b := within(t), bustest.Connect(t, bustest.Start(t), "x")
	fact := func(id train.JobID) event.Fact {
		return event.JobFact(id, event.FactCancelRequested, "cancel", event.CancelRequested{})
	}
	waiting, release := bus.HoldWrites(b, event.StreamJobs)
	impatient, leave := context.WithCancel(ctx)
	side := pool.New().WithErrors()
	side.Go(func() error {
		if err := b.Publish(impatient, fact("b")); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("a publisher that has left: %w", err)
		}
		return nil
	})
	const repeats = 8
	for range repeats {
		side.Go(func() error { return b.Publish(ctx, fact("a")) })
	}
	until(ctx, waiting, repeats+1)
	leave()
	until(ctx, waiting, repeats)
	if _, messages := waiting(); messages != 2 {
		t.Errorf("%d messages wait", messages)
	}
	release()
	if err := side.Wait(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.LastSequence(ctx, event.StreamJobs); err != nil || n != 1 {
		t.Errorf("%d facts are stored (%v)", n, err)
	}
}

// TestLanesGoSideBySideEachInOrder: a lane that waits holds up no other one, each lane is in order, and a message
// without a lane comes after all before it and before all after it.
func TestLanesGoSideBySideEachInOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	b := bustest.Connect(t, bustest.Start(t), "admission")
	publish := func(id train.JobID, fact, key string) {
		if err := b.Publish(ctx, event.JobFact(id, fact, key, event.CancelRequested{})); err != nil {
			t.Fatal(err)
		}
	}
	publish("slow", event.FactCancelRequested, "1")
	publish("fast", event.FactCancelRequested, "1")
	publish("slow", event.FactCancelRequested, "2")
	publish("alone", event.FactCancelRequested, "1")
	publish("fast", event.FactCancelRequested, "2")
	seen, fast := make(chan string, 10), make(chan struct{})
	side := pool.New()
	side.Go(func() {
		_ = b.Consume(ctx, bus.Consumer{
			Name: "admission", Stream: event.StreamJobs,
			Lane: func(m bus.Message) string {
				if m.Parsed.ID == "alone" {
					return ""
				}
				return m.Parsed.ID
			},
			Handle: func(_ context.Context, m bus.Message) ([]event.Fact, error) {
				switch at := m.Parsed.ID + m.Key[len(m.Key)-1:]; at {
				case "slow1":
					<-fast
					seen <- at
				case "fast1":
					seen <- at
					close(fast)
				default:
					seen <- at
				}
				return nil, nil
			},
		})
	})
	for _, want := range []string{"fast1", "slow1", "slow2", "alone1", "fast2"} {
		if got := <-seen; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	cancel()
	side.Wait()
}
