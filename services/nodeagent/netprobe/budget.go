package netprobe

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// budget is what the agent may send: probes, answers and traces together. In no second does it pass the packets or the bytes that it was given.
type budget struct {
	packets, bytes *rate.Limiter
}

// burstPart is the part of a second's budget that may be sent at once; the rest flows in evenly, so that both together are the budget.
const burstPart = 4

// Check says what is wrong with a budget that could not let the probes through: at an even pace, and each of them within what may be sent at once.
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
	limiter := func(n int) *rate.Limiter {
		burst := max(n/burstPart, 1)
		return rate.NewLimiter(rate.Limit(max(n-burst, 0)), burst)
	}
	return &budget{limiter(packetsPerSecond), limiter(bytesPerSecond)}
}

// allow takes a packet from the budget, or says that there is none left.
func (b *budget) allow(now time.Time, wireBytes int) bool {
	if b.packets.TokensAt(now) < 1 || b.bytes.TokensAt(now) < float64(wireBytes) {
		return false
	}
	return b.packets.AllowN(now, 1) && b.bytes.AllowN(now, wireBytes)
}
