package web

import (
	"log/slog"
	"sync"

	"github.com/switchyard-dl/switchyard/services/web/index"
)

// known is the index that watches write and requests read.
type known struct {
	mu    sync.RWMutex
	index *index.Index
	log   *slog.Logger
}

func newKnown(log *slog.Logger) *known { return &known{index: index.New(), log: log} }

func (k *known) put(source index.Source, key string, revision uint64, value []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := source.Put(key, revision, value); err != nil {
		k.log.Error("a record is left out", "error", err)
	}
}

func (k *known) listed(source index.Source) {
	k.mu.Lock()
	defer k.mu.Unlock()
	source.Listed()
}

// read calls f with the index, which must not leave it.
func (k *known) read(f func(*index.Index)) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	f(k.index)
}
