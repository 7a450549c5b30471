package netprobe

import (
	"time"

	"golang.org/x/time/rate"
)

// budget is what the agent may send: probes, answers and traces together. In no second does it pass the packets or the bytes that it was given.
type budget struct {
	packets, bytes *rate.Limiter
}

// burstPart is the part of a second's budget that may be sent at once; the rest flows in evenly, so that both together are the budget.
const burstPart = 4

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
