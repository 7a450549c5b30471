package bus

// HoldWrites has the writes to a stream wait for each other. waiting returns how many callers wait, and for how many
// messages; release lets them go.
func HoldWrites(b *Bus, stream string) (waiting func() (callers, messages int), release func()) {
	c := b.committer(stream)
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
