package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrMissing means that no stream of the bus has what was asked for: someone has deleted it, or the server stores
// nothing.
var ErrMissing = errors.New("a stream is missing on the bus, or its storage is off")

// cause puts an error of the client library into words that name its cause. What was wrapped stays wrapped.
func (b *Bus) cause(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected):
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.away()
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", ErrMissing, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w: %w", b.silent(), err)
	}
	return err
}

// silent says why a request has no answer.
func (b *Bus) silent() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.nc.IsConnected() {
		return b.away()
	}
	return fmt.Errorf("%w, although it is connected", ErrAway)
}
