package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		if err := b.Run(ctx, func(_ context.Context, items [][]byte) []error {
			results := make([]error, len(items))
			for i, data := range items {
				if results[i] = deliver(string(data)); results[i] == nil {
					taken = append(taken, string(data))
				} else if !errors.Is(results[i], ErrUnreadable) { // the others keep their place
					return slices.Concat(results[:i], slices.Repeat(results[i:i+1], len(items)-i))
				}
			}
			if len(taken) == n {
				cancel()
			}
			return results
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

// The receiver may take some items and leave others for later. Those that are left keep their order.
func TestWhatIsLeftStaysInOrder(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, 100)
	put(t, b, "a", "b", "c", "d")
	var offered []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := b.Run(ctx, func(_ context.Context, items [][]byte) []error {
		results := make([]error, len(items))
		for i, data := range items {
			if offered = append(offered, strings.TrimPrefix(string(data), "data of ")); len(items) > 2 && i%2 == 0 {
				results[i] = errors.New("not yet")
			}
		}
		if len(items) == 2 {
			cancel()
		}
		return results
	})
	if want := "a b c d a c"; err != nil || strings.Join(offered, " ") != want {
		t.Errorf("%q, %v, want %s", offered, err, want)
	}
	if n := open(t, dir, 100).Len(); n != 0 {
		t.Errorf("%d items left on disk", n)
	}
}

// A file that cannot be read holds up those behind it.
func TestAFileThatCannotBeReadKeepsItsPlace(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, 100)
	put(t, b, "a", "b", "c")
	path := filepath.Join(dir, b.items[1].name())
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	var offered []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = b.Run(ctx, func(_ context.Context, items [][]byte) []error {
		for _, data := range items {
			offered = append(offered, string(data))
		}
		if len(items) == 0 {
			if err := errors.Join(os.Remove(path), os.WriteFile(path, kept, 0o600)); err != nil {
				t.Error(err)
			}
		}
		if len(offered) == 3 {
			cancel()
		}
		return make([]error, len(items))
	})
	if want := []string{"data of a", "data of b", "data of c"}; err != nil || !slices.Equal(offered, want) {
		t.Errorf("%q, %v", offered, err)
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
