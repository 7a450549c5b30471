package bus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// readerTime is how long the server keeps the reader of a process that has ended.
const readerTime = time.Minute

// A reader asks for messages again after pullTime. Meanwhile the server shows by a beat that it still knows the reader;
// after two missing beats the reader begins again. The services have dozens of readers, which do this also while
// nothing happens.
const (
	pullTime = 30 * time.Second
	pullBeat = 5 * time.Second
)

// resetAttempts is how often the client looks for a consumer that has gone before the reader fails, so that its caller
// begins again. Without a bound it would look for ever, whatever becomes of its context.
const resetAttempts = 2

// reader reads a stream in order. The server has room for a thousand consumers of a stream, so a finished reader
// deletes its own. It is a pull consumer: a push consumer opened at the moment the server comes back can stay silent
// for good.
type reader struct {
	jetstream.MessagesContext
	bus      *Bus
	stream   string
	consumer jetstream.Consumer
	// pending is the number of messages to read at the beginning.
	pending uint64
}

func (b *Bus) read(ctx context.Context, stream string, config jetstream.OrderedConsumerConfig) (*reader, error) {
	config.InactiveThreshold, config.MaxResetAttempts = readerTime, resetAttempts
	try, cancel := exchange(ctx)
	defer cancel()
	cons, err := b.js.OrderedConsumer(try, stream, config)
	if err != nil {
		return nil, err
	}
	pending := cons.CachedInfo().NumPending
	messages, err := cons.Messages(jetstream.PullExpiry(pullTime), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, messages.Stop) // what Next waits for need not depend on its context
	return &reader{messages, b, stream, cons, pending}, nil
}

// end deletes the consumer. ctx may already have ended.
func (r *reader) end(ctx context.Context) {
	r.Stop()
	info := r.consumer.CachedInfo()
	if info == nil || !r.bus.nc.IsConnected() {
		return
	}
	try, cancel := exchange(context.WithoutCancel(ctx))
	defer cancel()
	_ = r.bus.js.DeleteConsumer(try, r.stream, info.Name) // else the server does so after readerTime
}
