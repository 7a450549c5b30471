package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// BatchConsumer is a durable, strictly ordered reader of a stream that takes many messages at a time, for targets that
// want batches. The stream is the buffer: nothing is acknowledged before Handle has returned without an error, and at
// most one batch is in memory.
type BatchConsumer struct {
	Name    string
	Stream  string
	Filters []string
	// Size is the largest number of messages of a batch, Wait the longest time to collect one. Before each the consumer
	// rests, and messages gather in the stream: the bus writes down what it delivers each time.
	Size       int
	Wait, Rest time.Duration
	// Handle takes a batch in the order of the stream. After an error that wraps ErrPoison it gets each half of the batch
	// on its own, until the messages that no repetition makes good are alone and moved to POISON. After any other error it
	// gets the same batch again, with a growing delay. After a crash it gets messages again that it handled before. All
	// that must be harmless.
	Handle func(ctx context.Context, batch []Message) error
}

const (
	// ackWait is long: a reader that ends leaves the rest to takeOver.
	ackWait = 10 * time.Minute
	// batchRetry is the longest delay between two tries of a batch.
	batchRetry = 5 * time.Second
)

// ConsumeBatches runs the consumer until ctx ends. It survives restarts of the server.
func (b *Bus) ConsumeBatches(ctx context.Context, c BatchConsumer) error {
	return b.persist(ctx, "consumer "+c.Name, func(ctx context.Context) error { return b.consumeBatches(ctx, c) })
}

func (b *Bus) consumeBatches(ctx context.Context, c BatchConsumer) error {
	cons, err := b.takeOver(ctx, c.Stream, c.Name, c.Filters, c.Size)
	if err != nil {
		return err
	}
	for turn := inTurn(cons); ctx.Err() == nil; {
		raw, batch, err := b.fetchBatch(cons, c, turn)
		if err != nil {
			return fmt.Errorf("read consumer %s: %w", c.Name, err)
		}
		if len(batch) == 0 {
			continue
		}
		if g := b.watched(); g != nil {
			if err := g.handles(); err != nil {
				return err
			}
		}
		b.lags(c.Name, raw[0], batch[0])
		if err := b.insist(ctx, c, raw, batch); err != nil {
			return err
		}
		if err := b.acknowledgeAll(ctx, raw[len(raw)-1]); err != nil {
			return err
		}
		b.caughtUp(c.Name, raw[len(raw)-1])
		tick.Pause(ctx, c.Rest)
	}
	return nil
}

// lags notes how far a consumer is behind that has a message to handle.
func (b *Bus) lags(consumer string, raw jetstream.Msg, m Message) {
	if meta, err := raw.Metadata(); err == nil {
		b.meter.behind(Lag{consumer, meta.NumPending + 1, m.Stored})
	}
}

// caughtUp notes that a consumer has handled all messages if there was none behind the last one.
func (b *Bus) caughtUp(consumer string, last jetstream.Msg) {
	if meta, err := last.Metadata(); err == nil && meta.NumPending == 0 {
		b.meter.behind(Lag{Consumer: consumer})
	}
}

func (b *Bus) acknowledgeAll(ctx context.Context, last jetstream.Msg) error {
	// What was handled is acknowledged even if the reader is asked to stop meanwhile: the next one need not do it again.
	try, cancel := exchange(context.WithoutCancel(ctx))
	defer cancel()
	return ackError(last.DoubleAck(try))
}

// takeOver opens a durable consumer behind the last acknowledged message. Messages that an earlier reader had fetched
// and not acknowledged would come again only after a while, and newer messages before them; in that case takeOver
// recreates the consumer. Meanwhile a second one marks its place: even after a crash nobody reads again what was
// acknowledged.
func (b *Bus) takeOver(ctx context.Context, stream, name string, filters []string, most int) (jetstream.Consumer, error) {
	b.meter.setAside(name, 0)
	try, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	t := taking{b.js, stream, jetstream.ConsumerConfig{
		Durable: name, FilterSubjects: filters, AckPolicy: jetstream.AckAllPolicy, AckWait: ackWait, MaxAckPending: most, DeliverPolicy: jetstream.DeliverAllPolicy,
	}}
	own, marked, err := t.places(try)
	if err != nil {
		return nil, fmt.Errorf("look at consumer %s: %w", name, err)
	}
	if own != nil && !own.clean {
		if marked, err = t.mark(try, own, marked); err != nil {
			return nil, fmt.Errorf("recreate consumer %s: %w", name, err)
		}
		own = nil
	}
	switch {
	case own != nil:
		t.config.DeliverPolicy, t.config.OptStartSeq = own.config.DeliverPolicy, own.config.OptStartSeq
	case marked != nil:
		t.config.DeliverPolicy, t.config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, marked.next
	}
	cons, err := b.js.CreateOrUpdateConsumer(try, stream, t.config)
	if err == nil && marked != nil {
		err = b.js.DeleteConsumer(try, stream, t.marker())
	}
	if err != nil {
		return nil, fmt.Errorf("ensure consumer %s: %w", name, err)
	}
	return cons, nil
}

// taking takes a durable consumer over from a reader that has ended.
type taking struct {
	js     jetstream.JetStream
	stream string
	config jetstream.ConsumerConfig
}

func (t *taking) marker() string { return t.config.Durable + "-place" }

// place is where a durable consumer stands.
type place struct {
	config jetstream.ConsumerConfig
	// next is the first message that was not acknowledged.
	next uint64
	// clean says that no message behind it was delivered.
	clean bool
}

func (t *taking) places(ctx context.Context) (own, marked *place, err error) {
	own, err = t.place(ctx, t.config.Durable)
	if err == nil {
		marked, err = t.place(ctx, t.marker())
	}
	return own, marked, err
}

// place returns nil if there is no such consumer.
func (t *taking) place(ctx context.Context, name string) (*place, error) {
	cons, err := t.js.Consumer(ctx, t.stream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := cons.CachedInfo()
	clean := i.NumAckPending == 0 && i.Config.AckPolicy == jetstream.AckAllPolicy
	return &place{i.Config, max(i.AckFloor.Stream+1, i.Config.OptStartSeq), clean}, nil
}

// mark replaces a consumer by a second one, which only marks its place.
func (t *taking) mark(ctx context.Context, own, stale *place) (*place, error) {
	if stale != nil {
		if err := t.js.DeleteConsumer(ctx, t.stream, t.marker()); err != nil {
			return nil, err
		}
	}
	config := t.config
	config.Durable, config.DeliverPolicy, config.OptStartSeq = t.marker(), jetstream.DeliverByStartSequencePolicy, own.next
	if _, err := t.js.CreateConsumer(ctx, t.stream, config); err != nil {
		return nil, err
	}
	return own, t.js.DeleteConsumer(ctx, t.stream, t.config.Durable)
}

func (b *Bus) fetchBatch(cons jetstream.Consumer, c BatchConsumer, turn *turn) ([]jetstream.Msg, []Message, error) {
	fetched, err := cons.Fetch(c.Size, jetstream.FetchMaxWait(c.Wait))
	if err != nil {
		return nil, nil, err
	}
	var raw []jetstream.Msg
	var batch []Message
	for r := range fetched.Messages() {
		m, _, err := b.delivered(r)
		if err == nil {
			err = turn.is(r)
		}
		if err != nil {
			return nil, nil, err
		}
		raw, batch = append(raw, r), append(batch, m)
	}
	return raw, batch, fetched.Error()
}

// insist passes a batch to Handle until it succeeds. Between two tries it tells the server that the work goes on.
func (b *Bus) insist(ctx context.Context, c BatchConsumer, raw []jetstream.Msg, batch []Message) error {
	for try := uint64(0); ; try++ {
		err := b.handleBatch(ctx, c, batch)
		if err == nil {
			return nil
		}
		delay := min(retryDelay(try), batchRetry)
		b.log.Warn("batch postponed", "consumer", c.Name, "messages", len(batch), "sequence", batch[0].Sequence,
			"delay", delay, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
		for _, m := range raw {
			if err := m.InProgress(); err != nil {
				return fmt.Errorf("go on with consumer %s: %w", c.Name, err)
			}
		}
	}
}

// handleBatch handles a batch once, and sets aside the messages in it that no repetition makes good.
func (b *Bus) handleBatch(ctx context.Context, c BatchConsumer, batch []Message) error {
	err := protect(func() error { return c.Handle(ctx, batch) })
	switch half := len(batch) / 2; {
	case !errors.Is(err, ErrPoison):
		return err
	case half == 0:
		return b.setAside(ctx, c.Name, c.Stream, batch[0], err)
	default:
		if err := b.handleBatch(ctx, c, batch[:half]); err != nil {
			return err
		}
		return b.handleBatch(ctx, c, batch[half:])
	}
}
