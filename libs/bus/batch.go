package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// BatchConsumer is a durable, strictly ordered reader of a stream that takes many messages at a time, for targets that
// want batches. The stream is the buffer: nothing is acknowledged before Handle has returned without an error, and at
// most one batch is in memory.
type BatchConsumer struct {
	Name    string
	Stream  string
	Filters []string
	// Size is the largest number of messages of a batch, Wait the longest time to collect one.
	Size int
	Wait time.Duration
	// Handle takes a batch in the order of the stream. After an error it gets the same batch again, with a growing
	// delay. After a crash it gets messages again that it handled before, which must be harmless.
	Handle func(ctx context.Context, batch []Message) error
}

const (
	batchAckWait = time.Minute
	// batchRetry is the longest delay between two tries of a batch.
	batchRetry = 5 * time.Second
)

// ConsumeBatches runs the consumer until ctx ends. It survives restarts of the server.
func (b *Bus) ConsumeBatches(ctx context.Context, c BatchConsumer) error {
	return b.persist(ctx, "consumer "+c.Name, func() error { return b.consumeBatches(ctx, c) })
}

func (b *Bus) consumeBatches(ctx context.Context, c BatchConsumer) error {
	cons, err := b.takeOver(ctx, c)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		raw, batch, err := fetchBatch(cons, c)
		if err != nil {
			return fmt.Errorf("read consumer %s: %w", c.Name, err)
		}
		if len(batch) == 0 {
			continue
		}
		if err := b.insist(ctx, c, raw, batch); err != nil {
			return err
		}
		if err := b.acknowledgeAll(ctx, raw[len(raw)-1]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bus) acknowledgeAll(ctx context.Context, last jetstream.Msg) error {
	// What was handled is acknowledged even if the reader is asked to stop meanwhile: the next one need not do it again.
	try, cancel := exchange(context.WithoutCancel(ctx))
	defer cancel()
	return ackError(last.DoubleAck(try))
}

// takeOver opens the durable consumer behind the last acknowledged message. Messages that an earlier reader had fetched
// and not acknowledged would come again only after a while, and newer messages before them; in that case takeOver
// recreates the durable. A crash in between leaves a consumer that begins at the beginning of the stream.
func (b *Bus) takeOver(ctx context.Context, c BatchConsumer) (jetstream.Consumer, error) {
	config := jetstream.ConsumerConfig{
		Durable: c.Name, FilterSubjects: c.Filters, AckPolicy: jetstream.AckAllPolicy, AckWait: batchAckWait,
		MaxAckPending: c.Size, DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	try, cancel := exchange(ctx)
	defer cancel()
	cons, err := b.js.Consumer(try, c.Stream, c.Name)
	if err == nil {
		info := cons.CachedInfo()
		config.DeliverPolicy, config.OptStartSeq = info.Config.DeliverPolicy, info.Config.OptStartSeq
		if info.NumAckPending > 0 {
			if err := b.js.DeleteConsumer(try, c.Stream, c.Name); err != nil {
				return nil, fmt.Errorf("recreate consumer %s: %w", c.Name, err)
			}
			config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, info.AckFloor.Stream+1
		}
	}
	cons, err = b.js.CreateOrUpdateConsumer(try, c.Stream, config)
	if err != nil {
		return nil, fmt.Errorf("ensure consumer %s: %w", c.Name, err)
	}
	return cons, nil
}

func fetchBatch(cons jetstream.Consumer, c BatchConsumer) ([]jetstream.Msg, []Message, error) {
	fetched, err := cons.Fetch(c.Size, jetstream.FetchMaxWait(c.Wait))
	if err != nil {
		return nil, nil, err
	}
	var raw []jetstream.Msg
	var batch []Message
	for r := range fetched.Messages() {
		m, _, err := delivered(r)
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
		err := c.Handle(ctx, batch)
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
