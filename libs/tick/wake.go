package tick

import (
	"context"
	"sync"
)

// Signal wakes the loop that receives from it. It has room for one signal: many mean as much as one.
type Signal chan struct{}

// NewSignal returns a signal that was not sent yet.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the loop. It never waits.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Latch holds loops back until something is known. Once open it stays open.
type Latch struct {
	once   sync.Once
	opened chan struct{}
}

// NewLatch returns a latch that is not open.
func NewLatch() *Latch { return &Latch{opened: make(chan struct{})} }

// Open opens the latch.
func (l *Latch) Open() { l.once.Do(func() { close(l.opened) }) }

// Wait returns true when the latch is open, false if ctx ends first.
func (l *Latch) Wait(ctx context.Context) bool {
	select {
	case <-l.opened:
		return true
	case <-ctx.Done():
		return false
	}
}

// Then returns a loop that begins when the latch is open.
func (l *Latch) Then(loop func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !l.Wait(ctx) {
			return nil
		}
		return loop(ctx)
	}
}
