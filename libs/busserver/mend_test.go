package busserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/busserver/backup"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestDamagedMessagesAreCutOut: what is damaged in a file of the bus is lost, and nothing behind it.
func TestDamagedMessagesAreCutOut(t *testing.T) {
	t.Parallel()
	const messages = 40
	// at is where the body of a message begins.
	at := func(data []byte, n int) int {
		return bytes.Index(data, fmt.Appendf(nil, "yard.job.j%d.cancel_requested", n))
	}
	flip := func(data []byte, from, n int) []byte {
		for i := range n {
			data[from+i] ^= 0xff
		}
		return data
	}
	tests := []struct {
		name  string
		spoil func(data []byte) []byte
		lost  []int
		words string
	}{
		{"nothing", func(data []byte) []byte { return data }, nil, ""},
		{"a body", func(data []byte) []byte { return flip(data, at(data, 7)+200, 64) }, []int{7}, "1 messages between 7 and 9, the first of yard.job.j7.cancel_requested.v1"},
		{"one bit", func(data []byte) []byte { data[at(data, 7)+300] ^= 4; return data }, []int{7}, "1 messages between 7 and 9"},
		{"a length", func(data []byte) []byte { return flip(data, at(data, 7)-22, 4) }, []int{7}, "1 messages between 7 and 9"},
		{"a length and the body before", func(data []byte) []byte { return flip(data, at(data, 7)-60, 64) }, []int{6, 7}, "2 messages between 6 and 9"},
		{"a sequence", func(data []byte) []byte { return flip(data, at(data, 7)-16, 2) }, []int{7}, "1 messages between 7 and 9"},
		{"the first", func(data []byte) []byte { return flip(data, at(data, 0)+200, 8) }, []int{0}, "1 messages between 0 and 2"},
		{"two places", func(data []byte) []byte { return flip(flip(data, at(data, 30)+200, 8), at(data, 7)+200, 8) }, []int{7, 30}, "1 messages between 30 and 32"},
		{"garbage behind the last", func(data []byte) []byte { return append(data, bytes.Repeat([]byte{0xa5}, 64)...) }, nil, ""},
		{"half of the last", func(data []byte) []byte { return data[:len(data)-100] }, []int{messages - 1}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			server := open(t, dir)
			b := bustest.Connect(t, server, "test")
			for n := range messages {
				if err := b.Publish(t.Context(), fact(n)); err != nil {
					t.Fatal(err)
				}
			}
			b.Close()
			server.Stop()
			msgs := filepath.Join(dir, "jetstream", "$G", "streams", event.StreamJobs, "msgs")
			data, err := os.ReadFile(filepath.Join(msgs, "1.blk"))
			if err != nil {
				t.Fatal(err)
			}
			before := bytes.Clone(data)
			if err := os.WriteFile(filepath.Join(msgs, "1.blk"), tt.spoil(data), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.words == "" { // else a clean stop must not hide it
				if err := os.Remove(filepath.Join(msgs, "index.db")); err != nil {
					t.Fatal(err)
				}
			}
			server = open(t, dir)
			found := map[string]bool{}
			b = bustest.Connect(t, server, "test")
			if err := b.Stored(t.Context(), event.StreamJobs, nil, time.Time{}, func(m bus.Message) { found[m.Parsed.ID] = true }); err != nil {
				t.Fatal(err)
			}
			for _, n := range tt.lost {
				if found[fmt.Sprint("j", n)] {
					t.Errorf("message %d should be lost", n)
				}
			}
			if len(found) != messages-len(tt.lost) {
				t.Errorf("%d of %d messages are there, %d should be lost", len(found), messages, len(tt.lost))
			}
			if words := fmt.Sprint(server.Cuts); !strings.Contains(words, tt.words) || tt.words == "" && len(server.Cuts) > 0 {
				t.Errorf("said %s, want %q", words, tt.words)
			}
			if tt.words == "" {
				return
			}
			kept, err := filepath.Glob(filepath.Join(dir, "damaged", "JOBS-*-1.blk"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("the file as it was: %v, %v", kept, err)
			}
			if data, err := os.ReadFile(kept[0]); err != nil || len(data) != len(before) {
				t.Errorf("the file as it was has %d bytes, want %d (%v)", len(data), len(before), err)
			}
		})
	}
}

// TestNoSequenceIsUsedAgain: a stream that has lost its newest messages goes on after those that were seen.
func TestNoSequenceIsUsedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := open(t, dir)
	b := bustest.Connect(t, server, "test")
	for n := range 40 {
		if err := b.Publish(t.Context(), fact(n)); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := bus.OpenKV(t.Context(), b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Swap(t.Context(), "j38", train.Job{ID: "j38", LastSequence: 39}, 0); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		newest map[string]uint64
		cut    int64
		want   uint64
		words  string
	}{
		{nil, 5000, 39, "ended at 38, but had 39"},
		{map[string]uint64{event.StreamJobs: 44}, 0, 44, "ended at 40, but had 44"},
		{map[string]uint64{event.StreamJobs: 45}, 0, 45, ""},
	} {
		b.Close()
		server.Stop()
		block := filepath.Join(dir, "jetstream", "$G", "streams", event.StreamJobs, "msgs", "1.blk")
		info, err := os.Stat(block)
		if err == nil && tt.cut > 0 {
			err = errors.Join(os.Truncate(block, info.Size()-tt.cut), os.Remove(filepath.Join(filepath.Dir(block), "index.db")))
		}
		if err != nil {
			t.Fatal(err)
		}
		if server, err = busserver.Start(busserver.Options{Open: true, Dir: dir, Newest: tt.newest}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
		if words := fmt.Sprint(server.Cuts); !strings.Contains(words, tt.words) || tt.words == "" && len(server.Cuts) > 0 {
			t.Errorf("said %s, want %q", words, tt.words)
		}
		b = bustest.Connect(t, server, "test")
		last, err := b.LastSequence(t.Context(), event.StreamJobs)
		if err != nil || last != tt.want {
			t.Errorf("ends at %d, want %d (%v)", last, tt.want, err)
		}
		if err := b.Publish(t.Context(), fact(100+int(tt.want))); err != nil {
			t.Fatal(err)
		}
	}
	found := map[uint64]bool{}
	if err := b.Stored(t.Context(), event.StreamJobs, nil, time.Time{}, func(m bus.Message) { found[m.Sequence] = true }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 38+3 || !found[40] || !found[45] || !found[46] || found[39] {
		t.Errorf("%d messages: %v", len(found), found)
	}
}

// TestASequenceThatWasDeliveredIsNotUsedAgain: a service may be at work on a fact that no record speaks of when the bus
// stops and the disk loses it.
func TestASequenceThatWasDeliveredIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := open(t, dir)
	b := bustest.Connect(t, server, "test")
	for n := range 10 {
		if err := b.Publish(t.Context(), fact(n)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	working := make(chan uint64, 10)
	reading := pool.New()
	reading.Go(func() {
		_ = b.Consume(ctx, bus.Consumer{Name: "test", Stream: event.StreamJobs, Handle: func(ctx context.Context, m bus.Message) ([]event.Fact, error) {
			working <- m.Sequence
			if m.Sequence == 10 {
				<-ctx.Done()
			}
			return nil, ctx.Err()
		}})
	})
	for <-working != 10 {
	}
	stop()
	reading.Wait()
	b.Close()
	server.Stop()
	block := filepath.Join(dir, "jetstream", "$G", "streams", event.StreamJobs, "msgs", "1.blk")
	info, err := os.Stat(block)
	if err == nil {
		err = errors.Join(os.Truncate(block, info.Size()-10), os.Remove(filepath.Join(filepath.Dir(block), "index.db")))
	}
	if err != nil {
		t.Fatal(err)
	}
	if server, err = busserver.Start(busserver.Options{Open: true, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	if words := fmt.Sprint(server.Cuts); !strings.Contains(words, "ended at 9, but had 10") {
		t.Errorf("said %s", words)
	}
	b = bustest.Connect(t, server, "test")
	if err := b.Publish(t.Context(), fact(11)); err != nil {
		t.Fatal(err)
	}
	if last, err := b.LastSequence(t.Context(), event.StreamJobs); err != nil || last != 11 {
		t.Errorf("the next fact has the sequence %d, want 11 (%v)", last, err)
	}
}

// TestDamageAtRestIsFoundAndCutOut: what flips in a file while the server works is found before anyone asks for the
// message, and cut out while clients stay connected.
func TestDamageAtRestIsFoundAndCutOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys := identity.Keys(filepath.Join(dir, "keys"))
	if err := keys.Make(); err != nil {
		t.Fatal(err)
	}
	accounts, err := keys.Accounts()
	if err != nil {
		t.Fatal(err)
	}
	server, err := busserver.Start(busserver.Options{Dir: dir, Accounts: accounts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Keys: filepath.Join(dir, "keys"), Name: "bus"})
	if err == nil {
		err = b.Ensure(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	for n := range 40 {
		if err := b.Publish(t.Context(), fact(n)); err != nil {
			t.Fatal(err)
		}
	}
	scrub := func() []busserver.Cut {
		t.Helper()
		cuts, err := server.Scrub(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return cuts
	}
	if cuts := scrub(); len(cuts) > 0 {
		t.Fatalf("before the damage: %v", cuts)
	}
	block, err := os.OpenFile(filepath.Join(dir, "jetstream", identity.Account, "streams", event.StreamJobs, "msgs", "1.blk"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(block)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("yard.job.j7.")) + 300
	if _, err := block.WriteAt([]byte{data[at] ^ 1}, int64(at)); err != nil {
		t.Fatal(err)
	}
	for range tick.Every(t.Context(), 200*time.Millisecond) { // until the server no longer answers from its memory
		if err = backup.Verify(t.Context(), b, event.StreamJobs); err != nil {
			break
		}
	}
	if !errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), "1, the first under sequence 8") {
		t.Errorf("read from the server: %v", err)
	}
	if _, err := backup.Write(t.Context(), b, filepath.Join(dir, "backup"), time.Now(), func(string) bool { return true }); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("backup: %v", err)
	}
	if cuts := scrub(); len(cuts) != 1 || !strings.Contains(cuts[0].Words, "1 messages between 7 and 9, the first of yard.job.j7.") {
		t.Errorf("cut %v", cuts)
	}
	if err := b.Publish(t.Context(), fact(40)); err != nil {
		t.Errorf("after it: %v", err)
	}
	found := map[string]bool{}
	if err := b.Stored(t.Context(), event.StreamJobs, nil, time.Time{}, func(m bus.Message) { found[m.Parsed.ID] = true }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 40 || found["j7"] || !found["j40"] {
		t.Errorf("%d messages are left, want all but j7: %v", len(found), found)
	}
	if cuts := scrub(); len(cuts) > 0 {
		t.Errorf("after it: %v", cuts)
	}
}

func open(t *testing.T, dir string) *busserver.Server {
	t.Helper()
	server, err := busserver.Start(busserver.Options{Open: true, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}
