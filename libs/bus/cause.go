package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrMissing means that no stream of the bus has what was asked for: someone has deleted it, or the server stores
// nothing.
var ErrMissing = errors.New("a stream is missing on the bus, or its storage is off")

// unsent reports whether an error of the client library means that the connection is away.
func unsent(err error) bool {
	return errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrDisconnected)
}

// cause puts an error of the client library into words that name its cause. What was wrapped stays wrapped.
func (b *Bus) cause(err error) error {
	switch {
	case err == nil:
		return nil
	case unsent(err):
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.away()
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, nats.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", ErrMissing, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w: %w", b.silent(), err)
	}
	return err
}

// silent says why a request has no answer.
func (b *Bus) silent() error {
	b.askTrouble()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.nc.IsConnected():
		return b.away()
	case b.trouble.words != "":
		return fmt.Errorf("%w: %s", ErrAway, b.trouble.words)
	}
	return fmt.Errorf("%w, although it is connected", ErrAway)
}

// troubleSubject is where the process around an embedded server answers why that stores nothing. Such a question needs
// no storage.
const troubleSubject = "switchyard.bus.trouble"

// trouble is the newest answer.
type trouble struct {
	askedAt time.Time
	words   string
}

const (
	// troubleTime bounds the question, troubleEvery is the least time between two of them.
	troubleTime  = 300 * time.Millisecond
	troubleEvery = 2 * time.Second
)

// askTrouble asks, unless it has just been asked. A NATS server of the operator's has nobody who answers.
func (b *Bus) askTrouble() {
	b.mu.Lock()
	due := time.Since(b.trouble.askedAt) > troubleEvery
	if due {
		b.trouble.askedAt = time.Now()
	}
	b.mu.Unlock()
	if !due || !b.nc.IsConnected() {
		return
	}
	words := ""
	if reply, err := b.nc.Request(troubleSubject, nil, troubleTime); err == nil {
		words = string(reply.Data)
	}
	b.mu.Lock()
	b.trouble.words = words
	b.mu.Unlock()
}

// Trouble returns what the process around the server says is wrong with it; empty if it stores everything. The answer
// is up to two seconds old.
func (b *Bus) Trouble() string {
	b.askTrouble()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trouble.words
}

// AnswerTrouble answers why the server stores nothing, until ctx ends.
func AnswerTrouble(ctx context.Context, b *Bus, why func() error) error {
	sub, err := b.nc.Subscribe(troubleSubject, func(m *nats.Msg) {
		words := ""
		if err := why(); err != nil {
			words = err.Error()
		}
		_ = m.Respond([]byte(words))
	})
	if err != nil {
		return fmt.Errorf("serve %s: %w", troubleSubject, err)
	}
	<-ctx.Done()
	return sub.Unsubscribe()
}
