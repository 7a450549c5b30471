package bus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
)

// turn is one period in which a contender leads.
type turn struct {
	holder string
	term   uint64
	lost   <-chan struct{}
	leave  chan error
}

// contend lets a process compete for the lease of a task; each of its turns lasts until it is ended by the test or
// loses the lease.
func contend(ctx context.Context, t *testing.T, wait *conc.WaitGroup, b *bus.Bus, holder string, turns chan<- turn) {
	t.Helper()
	wait.Go(func() {
		err := b.Lead(ctx, bus.Claim{Task: "planner", Holder: holder}, func(ctx context.Context, term uint64) error {
			now := turn{holder, term, ctx.Done(), make(chan error, 1)}
			turns <- now
			select {
			case <-ctx.Done():
				return nil
			case err := <-now.leave:
				return err
			}
		})
		if err != nil && !errors.Is(err, errLeft) {
			t.Errorf("%s: %v", holder, err)
		}
	})
}

var errLeft = errors.New("left")

func next(t *testing.T, turns <-chan turn) turn {
	t.Helper()
	select {
	case now := <-turns:
		return now
	case <-time.After(time.Minute):
		t.Fatal("no process leads")
		return turn{}
	}
}

func TestOneProcessAtATimeLeads(t *testing.T) {
	t.Parallel()
	s := bustest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wait conc.WaitGroup
	turns := make(chan turn)
	for _, holder := range []string{"a", "b", "c"} {
		contend(ctx, t, &wait, bustest.Connect(t, s, holder), holder, turns)
	}
	term := uint64(0)
	seen := map[string]bool{}
	for range 3 {
		now := next(t, turns)
		if now.term <= term || seen[now.holder] {
			t.Fatalf("%s leads in term %d after term %d", now.holder, now.term, term)
		}
		term, seen[now.holder] = now.term, true
		select {
		case other := <-turns:
			t.Fatalf("%s leads beside %s", other.holder, now.holder)
		case <-time.After(1500 * time.Millisecond): // longer than a standby waits between two checks
		}
		now.leave <- errLeft
	}
	cancel()
	wait.Wait()
}

// TestOneOfTheSameNameTakesOverAtOnce: the successor of a process that was killed does not wait for the lease to run
// out, and an orderly stop gives it back.
func TestOneOfTheSameNameTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	s := bustest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wait conc.WaitGroup
	turns := make(chan turn)
	dying := bustest.Connect(t, s, "a")
	contend(ctx, t, &wait, dying, "a", turns)
	first := next(t, turns)
	dying.Close()
	contend(ctx, t, &wait, bustest.Connect(t, s, "a again"), "a", turns)
	again := next(t, turns)
	if again.term <= first.term {
		t.Errorf("term %d after %d", again.term, first.term)
	}
	contend(ctx, t, &wait, bustest.Connect(t, s, "b"), "b", turns)
	kv, err := bus.OpenKV[contract.Lease](ctx, bustest.Connect(t, s, "thief"), contract.Leases)
	if err != nil {
		t.Fatal(err)
	}
	held, err := kv.Get(ctx, "planner")
	if err != nil || held.Value.Holder != "a" {
		t.Fatalf("lease %+v, %v: want a's", held, err)
	}
	cancel()
	wait.Wait()
	if _, err := kv.Get(t.Context(), "planner"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("after an orderly stop the lease is still there: %v", err)
	}
}

func TestAnotherProcessTakesOverFromADeadOne(t *testing.T) {
	t.Parallel()
	s := bustest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wait conc.WaitGroup
	turns := make(chan turn)
	dying := bustest.Connect(t, s, "a")
	contend(ctx, t, &wait, dying, "a", turns)
	first := next(t, turns)
	contend(ctx, t, &wait, bustest.Connect(t, s, "b"), "b", turns)
	dying.Close()
	if now := next(t, turns); now.holder != "b" || now.term <= first.term {
		t.Errorf("%s leads in term %d, want b after term %d", now.holder, now.term, first.term)
	}
	cancel()
	wait.Wait()
}

// TestHolderThatLostItsLeaseStops: a process that finds another name in the lease ends its turn.
func TestHolderThatLostItsLeaseStops(t *testing.T) {
	t.Parallel()
	s := bustest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wait conc.WaitGroup
	turns := make(chan turn)
	contend(ctx, t, &wait, bustest.Connect(t, s, "a"), "a", turns)
	now := next(t, turns)
	b := bustest.Connect(t, s, "thief")
	kv, err := bus.OpenKV(ctx, b, contract.Leases)
	if err != nil {
		t.Fatal(err)
	}
	var stolen atomic.Bool
	if _, err := kv.Modify(ctx, "planner", func(l *contract.Lease) (bool, error) {
		*l = contract.Lease{Holder: "thief", Since: time.Now()}
		stolen.Store(true)
		return true, nil
	}); err != nil || !stolen.Load() {
		t.Fatal(err)
	}
	select {
	case <-now.lost:
	case <-time.After(time.Minute):
		t.Error("the turn goes on although another one holds the lease")
	}
	cancel()
	wait.Wait()
}
