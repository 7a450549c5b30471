// Package outbox stores on disk what could not be delivered, and delivers it as soon as possible. It offers the waiting
// items in order, many at a time, and does not interpret them.
package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// ErrFull says that the box holds as much as it may.
var ErrFull = errors.New("outbox is full")

// ErrUnreadable marks an item that no retry can deliver: it is renamed and skipped.
var ErrUnreadable = errors.New("unreadable")

const (
	suffix    = ".json"
	badSuffix = ".bad"
	// longestDelay bounds the time between two tries.
	longestDelay = 2 * time.Second
	// mostAtOnce bounds the items that are in memory.
	mostAtOnce = 1000
)

// Box is a folder of items, one file each: <number>-<hash of its key>.json.
type Box struct {
	dir   string
	limit int
	log   *slog.Logger
	wake  tick.Signal

	mu    sync.Mutex
	next  uint64
	items []item
}

type item struct {
	number uint64
	hash   string
}

func (i item) name() string { return fmt.Sprintf("%016d-%s%s", i.number, i.hash, suffix) }

// Open makes the folder if necessary and reads the items in it.
func Open(dir string, limit int, log *slog.Logger) (*Box, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make outbox %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read outbox %s: %w", dir, err)
	}
	b := &Box{dir: dir, limit: limit, log: log, wake: tick.NewSignal(), next: 1}
	for _, e := range entries {
		name, isItem := strings.CutSuffix(e.Name(), suffix)
		number, hash, _ := strings.Cut(name, "-")
		n, err := strconv.ParseUint(number, 10, 64)
		if !isItem || err != nil {
			continue // a file that was being written when the process died, or a skipped one
		}
		b.items = append(b.items, item{n, hash})
		b.next = max(b.next, n+1)
	}
	slices.SortFunc(b.items, func(x, y item) int { return int(x.number) - int(y.number) })
	return b, nil
}

// Len is the number of waiting items.
func (b *Box) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items)
}

// Put adds an item; when it returns nil the item is on disk. It does nothing if an item has the same key.
func (b *Box) Put(key string, data []byte) error {
	sum := sha256.Sum256([]byte(key))
	hash := hex.EncodeToString(sum[:16])
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(b.items, func(i item) bool { return i.hash == hash }) {
		return nil
	}
	if len(b.items) >= b.limit {
		return fmt.Errorf("keep %s: %w (%d items)", key, ErrFull, len(b.items))
	}
	i := item{b.next, hash}
	if err := installation.WriteFile(filepath.Join(b.dir, i.name()), data); err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	b.next++
	b.items = append(b.items, i)
	b.wake.Send()
	return nil
}

// Run offers the waiting items to deliver, in order, until ctx ends. deliver returns the result of each. An item leaves
// the box after it was delivered without an error, so it may be delivered twice and none is lost. The others are
// offered again.
func (b *Box) Run(ctx context.Context, deliver func(context.Context, [][]byte) []error) error {
	delay := time.Duration(0)
	for {
		items := b.first()
		if len(items) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-b.wake:
				continue
			}
		}
		done, err := b.deliver(ctx, items, deliver)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a stop that was asked for
		}
		if done > 0 {
			delay = 0
			continue
		}
		b.log.Debug("outbox waits", "items", b.Len(), "error", err)
		delay = min(max(2*delay, 50*time.Millisecond), longestDelay)
		tick.Pause(ctx, delay)
	}
}

// first returns the items that have waited longest.
func (b *Box) first() []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.items[:min(len(b.items), mostAtOnce)])
}

// deliver offers items and removes those that were delivered. It returns their number, and why the first other one
// stays.
func (b *Box) deliver(ctx context.Context, items []item, deliver func(context.Context, [][]byte) []error) (done int, err error) {
	contents, broken := b.read(items)
	results := append(deliver(ctx, contents), broken)
	gone := map[uint64]bool{}
	for i, item := range items[:min(len(items), len(results))] {
		if stays := b.settle(item, results[i]); stays == nil {
			gone[item.number] = true
		} else if err == nil {
			err = fmt.Errorf("deliver %s: %w", item.name(), stays)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items = slices.DeleteFunc(b.items, func(i item) bool { return gone[i.number] })
	return len(gone), err
}

// read returns the contents of items up to one that cannot be read, and why it cannot: what is behind it must not
// overtake it.
func (b *Box) read(items []item) (contents [][]byte, broken error) {
	for _, i := range items {
		data, err := os.ReadFile(filepath.Join(b.dir, i.name()))
		if err != nil {
			return contents, err
		}
		contents = append(contents, data)
	}
	return contents, nil
}

// settle removes an item that was delivered or does not exist, and renames one that never can be. Any other one stays.
func (b *Box) settle(i item, result error) error {
	path := filepath.Join(b.dir, i.name())
	switch {
	case result == nil:
		result = os.Remove(path)
	case errors.Is(result, ErrUnreadable):
		b.log.Error("outbox skips an unreadable item", "file", path+badSuffix, "error", result)
		result = os.Rename(path, path+badSuffix)
	}
	if errors.Is(result, os.ErrNotExist) {
		return nil
	}
	return result
}
