package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
)

func open(t *testing.T, dir string, limit int) *Box {
	t.Helper()
	b, err := Open(dir, limit, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b *Box, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if err := b.Put(k, []byte("data of "+k)); err != nil {
			t.Fatal(err)
		}
	}
}

// run delivers until n items were taken; deliver decides the result of each try.
func run(t *testing.T, b *Box, n int, deliver func(string) error) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var taken []string
	var running conc.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx, func(_ context.Context, data []byte) error {
			if err := deliver(string(data)); err != nil {
				return err
			}
			if taken = append(taken, string(data)); len(taken) == n {
				cancel()
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	running.Wait()
	return taken
}

func always(string) error { return nil }

func TestItemsAreDeliveredInOrderAcrossAProcess(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, 100)
	var want []string
	for i := range 12 { // more than nine: the order is that of numbers
		key := fmt.Sprint("k", i)
		put(t, first, key)
		want = append(want, "data of "+key)
	}
	put(t, first, "k3") // the same fact again
	second := open(t, dir, 100)
	put(t, second, "k5", "later")
	if got := run(t, second, 13, always); !slices.Equal(got, append(want, "data of later")) {
		t.Errorf("%q", got)
	}
	if n := open(t, dir, 100).Len(); n != 0 {
		t.Errorf("%d items left on disk", n)
	}
}

func TestWhatIsNotTakenIsTriedAgainBeforeTheNext(t *testing.T) {
	b := open(t, t.TempDir(), 100)
	put(t, b, "a", "b")
	tries := 0
	got := run(t, b, 2, func(s string) error {
		if tries++; tries < 4 {
			return fmt.Errorf("%s: the bus is away", s)
		}
		return nil
	})
	if want := []string{"data of a", "data of b"}; !slices.Equal(got, want) || tries != 5 {
		t.Errorf("%q after %d tries", got, tries)
	}
}

func TestAnUnreadableItemDoesNotBlockTheOthers(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, 100)
	put(t, b, "bad", "good")
	got := run(t, b, 1, func(s string) error {
		if s == "data of bad" {
			return ErrUnreadable
		}
		return nil
	})
	if !slices.Equal(got, []string{"data of good"}) {
		t.Errorf("%q", got)
	}
	if aside, err := filepath.Glob(filepath.Join(dir, "*"+badSuffix)); len(aside) != 1 || err != nil {
		t.Errorf("put aside: %q, error %v", aside, err)
	}
}

func TestItemsThatComeWhileItRuns(t *testing.T) {
	b := open(t, t.TempDir(), 100)
	put(t, b, "first")
	got := run(t, b, 2, func(s string) error {
		if s == "data of first" {
			put(t, b, "second")
		}
		return nil
	})
	if len(got) != 2 {
		t.Errorf("%q", got)
	}
}

func TestFullBoxAndLeftovers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".new-123", "notes.txt", "x-y.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, dir, 2)
	put(t, b, "a", "b")
	if err := b.Put("c", nil); !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want full", err)
	}
	if err := b.Put("a", nil); err != nil {
		t.Errorf("what is there already: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "notes.txt"), 1, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file is no folder")
	}
}
