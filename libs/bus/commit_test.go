package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
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
