// Package tick paces loops: it repeats work until a context ends, wakes a loop, and lets one begin.
package tick

import (
	"context"
	"iter"
	"time"
)

// Every yields at once, and then at each interval until ctx ends.
func Every(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for now := time.Now(); yield(now); {
			select {
			case <-ctx.Done():
				return
			case now = <-ticker.C:
			}
		}
	}
}

// After is Every without the first time.
func After(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}

// Pause waits. It returns false if ctx ends meanwhile.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
