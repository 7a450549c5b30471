package netprobe

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// budget is what the agent may send: probes, answers and traces together. It never exceeds the given packets or bytes
// in any second.
type budget struct {
	mu             sync.Mutex
	packets, bytes limit
}

// burstPart is the part of a second's budget that may be sent at once; the rest flows in evenly, so that both
// together are the budget.
const burstPart = 4

// Check reports why a budget could not let the probes through, at an even pace and each within what may be sent at
// once.
func (c Config) Check() error {
	wire := c.ProbeBytes + wrapIPv6
	evenly := func(n int) float64 { return float64(n - n/burstPart) }
	switch {
	case c.PacketsPerSecond < burstPart || c.BytesPerSecond < burstPart*wire:
		return fmt.Errorf("want at least %d packets and %d bytes in a second: room for as many probes of %d bytes with headers", burstPart, burstPart*wire, wire)
	case c.ProbesPerSecond > evenly(c.PacketsPerSecond):
		return fmt.Errorf("%v probes in a second do not fit into three quarters of %d packets", c.ProbesPerSecond, c.PacketsPerSecond)
	case c.ProbesPerSecond*float64(wire) > evenly(c.BytesPerSecond):
		return fmt.Errorf("%v probes of %d bytes with headers in a second do not fit into three quarters of %d bytes", c.ProbesPerSecond, wire, c.BytesPerSecond)
	}
	return nil
}

func newBudget(packetsPerSecond, bytesPerSecond int) *budget {
	return &budget{packets: newLimit(packetsPerSecond), bytes: newLimit(bytesPerSecond)}
}

// allow takes a packet from the budget; it returns false if none is left.
func (b *budget) allow(now time.Time, wireBytes int) bool { return b.take(now, wireBytes, 0) }

// spare is allow for a packet that leaves half of what may be sent at once to others: many nodes may want answers at
// the same time, and a node's own probes go on meanwhile.
func (b *budget) spare(now time.Time, wireBytes int) bool { return b.take(now, wireBytes, 0.5) }

// take takes a packet if a part of the burst is left after it.
func (b *budget) take(now time.Time, wireBytes int, rest float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.packets.refill(now)
	b.bytes.refill(now)
	if b.packets.left < 1+math.Floor(rest*b.packets.burst) || b.bytes.left < float64(wireBytes)+rest*b.bytes.burst {
		return false
	}
	b.packets.left--
	b.bytes.left -= float64(wireBytes)
	return true
}

// limit is a token bucket, which is full at first.
type limit struct {
	perSecond, burst, left float64
	at                     time.Time
}

// newLimit makes a limit of n in any second.
func newLimit(n int) limit {
	burst := max(n/burstPart, 1)
	return limit{perSecond: float64(max(n-burst, 0)), burst: float64(burst), left: float64(burst)}
}

// refill adds what has flowed in since the last call. A clock that goes back adds nothing.
func (l *limit) refill(now time.Time) {
	if passed := now.Sub(l.at).Seconds(); passed > 0 && !l.at.IsZero() {
		l.left = min(l.burst, l.left+passed*l.perSecond)
	}
	l.at = now
}
