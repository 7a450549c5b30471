package busserver_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

type log struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func fact(n int) event.Fact {
	return event.JobFact(train.JobID(fmt.Sprint("j", n)), event.FactCancelRequested, "cancel", event.CancelRequested{Reason: strings.Repeat("x", 4000)})
}

// TestAFullDiskIsNamedAndOvercome: whatever fills the disk, the reserve is released first, what was acknowledged stays,
// and the bus writes again once there is room, without a restart.
func TestAFullDiskIsNamedAndOvercome(t *testing.T) {
	t.Parallel()
	dir := bustest.SmallDisk(t, "40")
	server, err := busserver.Start(busserver.Options{Open: true, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	said := &log{}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	var watching conc.WaitGroup
	watching.Go(func() { server.Watch(ctx, slog.New(slog.NewTextHandler(said, nil))) })
	watching.Go(func() { disk.KeepReserve(ctx, dir, slog.New(slog.NewTextHandler(said, nil))) })
	t.Cleanup(func() { stop(); watching.Wait() })
	until := func(what string, holds func() bool) {
		t.Helper()
		for range tick.Every(ctx, 20*time.Millisecond) {
			if holds() {
				return
			}
		}
		t.Fatalf("never: %s\n%s", what, said)
	}
	b := bustest.Connect(t, server, "test")
	held := func() bool { return disk.Reserved(dir) }
	until("the reserve is held", held)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	until("the reserve is released", func() bool { return !held() })
	if err := b.Publish(ctx, fact(0)); err != nil {
		t.Errorf("with the room of the reserve: %v", err)
	}
	fill(t, filler)
	acked := 1
	until("the server says why it stores nothing", func() bool {
		try, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if b.Publish(try, fact(acked)) == nil {
			acked++
		}
		return server.Trouble() != nil
	})
	if words := server.Trouble().Error(); !strings.Contains(words, "the disk of the bus is full") || !strings.Contains(words, dir) {
		t.Errorf("trouble: %s", words)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	until("it stores again", func() bool {
		try, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return b.Publish(try, fact(1_000_000)) == nil
	})
	until("the reserve is held again", held)
	until("nothing is wrong", func() bool { return server.Trouble() == nil })
	found := map[string]bool{}
	if err := b.Stored(ctx, event.StreamJobs, nil, time.Time{}, func(m bus.Message) { found[m.Parsed.ID] = true }); err != nil {
		t.Fatal(err)
	}
	for n := range acked {
		if !found[fmt.Sprint("j", n)] {
			t.Errorf("fact %d was acknowledged and is gone", n)
		}
	}
	t.Logf("%d acknowledged\n%s", acked, said)
}

// fill appends to a file until the disk has no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for chunk := make([]byte, 64<<10); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
}
