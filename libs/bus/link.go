package bus

import (
	"fmt"
	"time"
)

// link is the state of the connection.
type link struct {
	// awayAt is when the connection was lost, why is the reason; awayAt is zero while it stands.
	awayAt time.Time
	why    error
	// returns counts how often it came back.
	returns uint64
}

func (b *Bus) disconnected(why error) {
	if b.nc != nil && b.nc.IsClosed() {
		return // by this process
	}
	b.mu.Lock()
	b.link.awayAt, b.link.why = time.Now(), why
	for _, c := range b.committers {
		c.disconnected()
	}
	b.mu.Unlock()
	b.log.Warn("bus disconnected: trying again until it is back", "error", why)
}

func (b *Bus) connected(url string) {
	b.mu.Lock()
	away := time.Since(b.link.awayAt)
	b.link.awayAt = time.Time{}
	b.link.returns++
	b.mu.Unlock()
	b.meter.reconnected()
	b.log.Info("bus connected again", "url", url, "away", away.Round(time.Millisecond))
	b.wake()
}

// away returns ErrAway with the time and the cause of the disconnect. The caller holds the lock.
func (b *Bus) away() error {
	if b.link.awayAt.IsZero() {
		return ErrAway
	}
	return fmt.Errorf("%w: not connected since %s (%w)", ErrAway, b.link.awayAt.Format(time.TimeOnly), b.link.why)
}

// Reconnects returns how often the connection was lost and came back.
func (b *Bus) Reconnects() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.link.returns
}
