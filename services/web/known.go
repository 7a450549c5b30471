package web

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"github.com/switchyard-dl/switchyard/services/web/index"
)

// known is the index that watches write and requests read, and what has changed in it.
type known struct {
	mu    sync.RWMutex
	index *index.Index
	log   *slog.Logger
	// start tells positions of this process from those of one before.
	start string
	// last is the sequence of the newest change. changes are the newest ones, in order.
	last    uint64
	changes []change
	// news is closed at each change, and another takes its place.
	news chan struct{}
}

// change says that a record has changed.
type change struct {
	sequence uint64
	bucket   string
	key      string
}

// remembered is the number of changes after which a stream that was cut off must load everything again.
const remembered = 10_000

func newKnown(log *slog.Logger, start string) *known {
	return &known{index: index.New(), log: log, start: start, news: make(chan struct{})}
}

func (k *known) put(source index.Source, key string, revision uint64, value []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed, err := source.Put(key, revision, value)
	if err != nil {
		k.log.Error("a record is left out", "error", err)
	}
	if changed && source.Bucket() != string(index.Power) { // which changes every second on every node
		k.note(source, key)
	}
}

func (k *known) listed(source index.Source) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range source.Listed() {
		k.note(source, key)
	}
}

func (k *known) note(source index.Source, key string) {
	k.last++
	k.changes = append(k.changes, change{k.last, source.Bucket(), key})
	if len(k.changes) > 2*remembered {
		k.changes = append([]change(nil), k.changes[remembered:]...)
	}
	close(k.news)
	k.news = make(chan struct{})
}

// read calls f with the index, which must not leave it, and returns the position of what f has seen.
func (k *known) read(f func(*index.Index)) (position string) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	f(k.index)
	return k.position(k.last)
}

func (k *known) position(sequence uint64) string { return fmt.Sprintf("%s.%d", k.start, sequence) }

// now returns the sequence of the newest change.
func (k *known) now() uint64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.last
}

// parse returns the sequence of a position. ok is false if another process gave it.
func (k *known) parse(position string) (sequence uint64, ok bool) {
	start, number, _ := strings.Cut(position, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	return n, err == nil && start == k.start
}

// follow calls f with the changes after a sequence, if there are any. last is the newest one; news is closed when there
// are more. complete is false if some of them are forgotten.
func (k *known) follow(after uint64, f func(*index.Index, []change)) (last uint64, complete bool, news <-chan struct{}) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if after > k.last || k.last-after > uint64(len(k.changes)) {
		return k.last, false, k.news
	}
	if k.last > after {
		f(k.index, k.changes[uint64(len(k.changes))-(k.last-after):])
	}
	return k.last, true, k.news
}
