package bus

import "context"

// HoldWrites has the writes to a stream wait for each other. waiting returns how many callers wait, and for how many
// messages; release lets them go.
func HoldWrites(b *Bus, stream string) (waiting func() (callers, messages int), release func()) {
	return hold(b.committer(stream))
}

// HoldRelayed is HoldWrites for what a relay writes.
func HoldRelayed(b *Bus, stream string) (waiting func() (callers, messages int), release func()) {
	return hold(b.committerAt(pace{stream, relayEvery}))
}

// RelayOne is Relay with room for one message.
func RelayOne(ctx context.Context, b *Bus, allow func(ctx context.Context, node string, m Message) error) error {
	return (&relay{Bus: b, allow: allow}).run(ctx)
}

func hold(c *committer) (waiting func() (callers, messages int), release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = true
	return func() (callers, messages int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, w := range c.waits {
			callers += w.callers
		}
		return callers, len(c.waits)
	}, c.run
}
