package bus_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// lines is a log that a test reads.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) wait(t *testing.T, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range tick.Every(ctx, 20*time.Millisecond) {
		l.mu.Lock()
		found := strings.Contains(l.all.String(), words)
		l.mu.Unlock()
		if found {
			return
		}
	}
	t.Fatalf("the log never says %q:\n%s", words, l.all.String())
}

// TestABusThatWasAwayIsNamed: the log says when it went and when it came back, errors and readiness that it is away; a
// lease that ran out meanwhile was not lost to anybody.
func TestABusThatWasAwayIsNamed(t *testing.T) {
	t.Parallel()
	options := busserver.Options{Open: true, Dir: t.TempDir(), Port: bustest.FreePort(t)}
	server, err := busserver.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	nodes, err := bus.OpenKV(t.Context(), b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	turns := make(chan turn)
	var leading conc.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	contend(ctx, t, &leading, b, "a", turns)
	held := next(t, turns)
	server.Stop()
	log.wait(t, "bus disconnected")
	if _, err := nodes.Swap(t.Context(), "n1", train.Node{ID: "n1"}, 0); !errors.Is(err, bus.ErrAway) || !strings.Contains(err.Error(), "not connected since") {
		t.Errorf("write: %v", err)
	}
	if err := b.Ready(); !errors.Is(err, bus.ErrAway) || !strings.Contains(err.Error(), "not connected since") {
		t.Errorf("ready: %v", err)
	}
	if server, err = busserver.Start(options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	log.wait(t, "bus connected again")
	if b.Reconnects() != 1 {
		t.Errorf("%d reconnects", b.Reconnects())
	}
	leases, err := bus.OpenKV(t.Context(), b, contract.Leases)
	if err != nil {
		t.Fatal(err)
	}
	for range tick.Every(ctx, 10*time.Millisecond) { // as if it had run out
		e, err := leases.Get(ctx, "planner")
		if err == nil && leases.Delete(ctx, "planner", e.Revision) == nil {
			break
		}
	}
	<-held.lost
	again := next(t, turns)
	log.wait(t, "No other process holds it")
	if again.term <= held.term {
		t.Errorf("term %d after %d", again.term, held.term)
	}
	stop()
	leading.Wait()
}

// TestNoWaitOutlivesItsContext: whatever is missing on the bus, each loop that waits for it ends with its context, and
// what is asked for it says what is missing.
func TestNoWaitOutlivesItsContext(t *testing.T) {
	t.Parallel()
	s := bustest.Start(t)
	b := bustest.Connect(t, s, "test")
	nodes, err := bus.OpenKV(t.Context(), b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	synced := make(chan struct{}, 10)
	var waiting conc.WaitGroup
	waiting.Go(func() { _ = nodes.Watch(ctx, func(bus.Entry[train.Node], bool) {}, func() { synced <- struct{}{} }) })
	waiting.Go(func() { _ = b.Follow(ctx, event.StreamJobs, nil, 1, func(bus.Message) {}) })
	waiting.Go(func() {
		_ = b.Consume(ctx, bus.Consumer{Name: "c", Stream: event.StreamJobs, Handle: func(context.Context, bus.Message) ([]event.Fact, error) { return nil, nil }})
	})
	<-synced
	js := bustest.JetStream(t, s.URL())
	for _, stream := range []string{event.StreamJobs, "KV_" + string(contract.Nodes)} {
		if err := js.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.LastSequence(t.Context(), event.StreamJobs); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("sequence of a missing stream: %v", err)
	}
	if _, err := nodes.Swap(t.Context(), "n1", train.Node{ID: "n1"}, 0); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("write to a missing bucket: %v", err)
	}
	if _, err := nodes.Get(t.Context(), "n1"); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("read of a missing bucket: %v", err)
	}
	waiting.Go(func() { _ = b.Ensure(ctx) })
	cancel()
	waiting.Wait()
}
