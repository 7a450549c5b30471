// Package outbox stores on disk what could not be delivered, and delivers it in order as soon as possible. It does
// not interpret its items.
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

// Run delivers items in order until ctx ends. An item leaves the box after deliver returned nil for it, so it may be
// delivered twice and none is lost.
func (b *Box) Run(ctx context.Context, deliver func(context.Context, []byte) error) error {
	delay := time.Duration(0)
	for {
		i, found := b.first()
		if !found {
			select {
			case <-ctx.Done():
				return nil
			case <-b.wake:
				continue
			}
		}
		err := b.deliver(ctx, i, deliver)
		if err == nil {
			delay = 0
			continue
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a stop that was asked for
		}
		b.log.Debug("outbox waits", "items", b.Len(), "error", err)
		delay = min(max(2*delay, 50*time.Millisecond), longestDelay)
		tick.Pause(ctx, delay)
	}
}

func (b *Box) first() (item, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.items) == 0 {
		return item{}, false
	}
	return b.items[0], true
}

func (b *Box) deliver(ctx context.Context, i item, deliver func(context.Context, []byte) error) error {
	path := filepath.Join(b.dir, i.name())
	data, err := os.ReadFile(path)
	if err == nil {
		err = deliver(ctx, data)
	}
	switch {
	case err == nil, errors.Is(err, os.ErrNotExist):
		err = os.Remove(path)
	case errors.Is(err, ErrUnreadable):
		b.log.Error("outbox skips an unreadable item", "file", path+badSuffix, "error", err)
		err = os.Rename(path, path+badSuffix)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("deliver %s: %w", i.name(), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items = b.items[1:]
	return nil
}
