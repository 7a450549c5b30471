package bus

import (
	"context"
	"sync/atomic"
	"time"
)

// Misses reports whether a watcher of some keys, which has seen a revision, lists them again before ctx ends.
func (k *KV[T]) Misses(ctx context.Context, interval time.Duration, seen *atomic.Uint64, patterns ...string) bool {
	return k.misses(ctx, interval, patterns, seen)
}
