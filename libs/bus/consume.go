package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Message is one stored fact as a consumer sees it.
type Message struct {
	// Subject is the raw subject; Parsed its parts, zero if ParseErr is set.
	Subject  string
	Parsed   event.Subject
	ParseErr error
	Key      string
	Source   string
	Cause    string
	// claim is what the message says about the person who asks for it: see Asker.
	claim claim
	// TraceParent is the publisher's W3C trace context, if any.
	TraceParent string
	// Time is when it happened according to its publisher, else when it was stored.
	Time time.Time
	// Stored is when the server stored it: the time to use if the publisher is not trusted.
	Stored   time.Time
	Sequence uint64
	// Data is the body, unpacked. A body that cannot be unpacked is left as it is, and BodyErr says why.
	Data    []byte
	BodyErr error
}

func (b *Bus) newMessage(subject string, header nats.Header, data []byte, sequence uint64, stored time.Time) Message {
	m := Message{
		Subject: subject, Key: header.Get(jetstream.MsgIDHeader), Source: header.Get(event.HeaderSource), Cause: header.Get(event.HeaderCause),
		claim:       claim{header.Get(event.HeaderBy), header.Get(event.HeaderDoor), header.Get(event.HeaderProof), b.roster},
		TraceParent: header.Get(event.HeaderTraceParent),
		Time:        stored, Stored: stored, Sequence: sequence, Data: data,
	}
	m.Parsed, m.ParseErr = event.ParseSubject(subject)
	body, err := event.Unpack(data, header.Get(event.HeaderEncoding), event.MostBytes(m.Parsed))
	if m.BodyErr = err; err == nil {
		m.Data = body
	}
	if t, err := time.Parse(time.RFC3339Nano, header.Get(event.HeaderTime)); err == nil {
		m.Time = t
	}
	return m
}

// delivered makes a Message of a message that a consumer received.
func (b *Bus) delivered(raw jetstream.Msg) (Message, *jetstream.MsgMetadata, error) {
	meta, err := raw.Metadata()
	if err != nil {
		return Message{}, nil, fmt.Errorf("read metadata of %s: %w", raw.Subject(), err)
	}
	return b.newMessage(raw.Subject(), raw.Headers(), raw.Data(), meta.Sequence.Stream, meta.Timestamp), meta, nil
}

// Handler turns a message into facts. They are published with their keys before the message is acknowledged, so a crash
// anywhere repeats the whole, which must be harmless. An error that wraps ErrPoison moves the message to POISON; after
// any other error the handler gets it again with a growing delay.
type Handler func(ctx context.Context, m Message) ([]event.Fact, error)

// Consumer is a durable reader of a stream that handles messages in order. Messages of different lanes are handled side
// by side, up to consumeAtOnce of them.
type Consumer struct {
	Name    string
	Stream  string
	Filters []string
	// Lane names what a message is about. A message without a lane is handled after all before it and before all after
	// it. Without this function, each message is.
	Lane   func(m Message) string
	Handle Handler
}

// consumeAtOnce is how many messages are handled side by side, if they are about different things, and acknowledged
// together. After a crash that many are delivered again. What they write goes to the disk together.
const consumeAtOnce = 256

// Consume runs the consumer until ctx ends. It survives restarts of the server.
func (b *Bus) Consume(ctx context.Context, c Consumer) error {
	return b.persist(ctx, "consumer "+c.Name, func(ctx context.Context) error { return b.consume(ctx, c) })
}

func (b *Bus) consume(ctx context.Context, c Consumer) error {
	cons, err := b.takeOver(ctx, c.Stream, c.Name, c.Filters, 2*consumeAtOnce)
	if err != nil {
		return err
	}
	messages, err := cons.Messages(jetstream.PullMaxMessages(consumeAtOnce), jetstream.PullExpiry(pullTime), jetstream.PullHeartbeat(pullBeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return fmt.Errorf("open consumer %s: %w", c.Name, err)
	}
	arrived := make(chan jetstream.Msg, consumeAtOnce)
	reading := pool.New().WithContext(ctx).WithCancelOnError()
	reading.Go(func(ctx context.Context) error {
		defer close(arrived)
		return readInto(ctx, messages, inTurn(cons), arrived)
	})
	reading.Go(func(ctx context.Context) error {
		defer messages.Stop()
		for first := range arrived {
			if g := b.watched(); g != nil {
				if err := g.handles(); err != nil {
					return err
				}
			}
			if err := b.deliverAll(ctx, c, collect(first, arrived)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := reading.Wait(); err != nil {
		return fmt.Errorf("read consumer %s: %w", c.Name, err)
	}
	return nil
}

func readInto(ctx context.Context, messages jetstream.MessagesContext, turn *turn, arrived chan<- jetstream.Msg) error {
	for {
		raw, err := messages.Next(jetstream.NextContext(ctx))
		if err == nil {
			err = turn.is(raw)
		}
		if err != nil {
			return err
		}
		select {
		case arrived <- raw:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// turn is the number of the next delivery of a consumer.
type turn struct{ next uint64 }

func inTurn(cons jetstream.Consumer) *turn { return &turn{cons.CachedInfo().Delivered.Consumer + 1} }

// errLost says that a message was delivered and never came: its connection broke, and is back.
var errLost = errors.New("a message was lost on its way")

// is returns errLost if a message is not the next one. The ack of a later message would take the lost one for handled,
// so the reader has to go back behind the last ack.
func (t *turn) is(raw jetstream.Msg) error {
	meta, err := raw.Metadata()
	if err != nil {
		return fmt.Errorf("read metadata of %s: %w", raw.Subject(), err)
	}
	if meta.Sequence.Consumer != t.next {
		return fmt.Errorf("%w: delivery %d came where %d was to come", errLost, meta.Sequence.Consumer, t.next)
	}
	t.next++
	return nil
}

// collect returns a message and those that have arrived behind it.
func collect(first jetstream.Msg, arrived <-chan jetstream.Msg) []jetstream.Msg {
	batch := []jetstream.Msg{first}
	for len(batch) < consumeAtOnce {
		select {
		case m, more := <-arrived:
			if !more {
				return batch
			}
			batch = append(batch, m)
		default:
			return batch
		}
	}
	return batch
}

// deliverAll handles messages and acknowledges them together.
func (b *Bus) deliverAll(ctx context.Context, c Consumer, raw []jetstream.Msg) error {
	last := raw[len(raw)-1]
	var together []Message
	for i, r := range raw {
		m, _, err := b.delivered(r)
		if err != nil {
			return err
		}
		if i == 0 {
			b.lags(c.Name, r, m)
		}
		if c.Lane != nil && c.Lane(m) != "" {
			together = append(together, m)
			continue
		}
		b.sideBySide(ctx, c, together)
		together = nil
		b.deliver(ctx, c, m)
	}
	b.sideBySide(ctx, c, together)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := b.acknowledgeAll(ctx, last); err != nil {
		return err
	}
	b.caughtUp(c.Name, last)
	return nil
}

// sideBySide handles each lane in order.
func (b *Bus) sideBySide(ctx context.Context, c Consumer, messages []Message) {
	lanes, order := map[string][]Message{}, []string{}
	for _, m := range messages {
		lane := c.Lane(m)
		if lanes[lane] == nil {
			order = append(order, lane)
		}
		lanes[lane] = append(lanes[lane], m)
	}
	side := pool.New().WithMaxGoroutines(consumeAtOnce)
	for _, lane := range order {
		side.Go(func() {
			for _, m := range lanes[lane] {
				b.deliver(ctx, c, m)
			}
		})
	}
	side.Wait()
}

// deliver handles a message until that succeeds or ctx ends.
func (b *Bus) deliver(ctx context.Context, c Consumer, m Message) {
	for try := uint64(0); ctx.Err() == nil; try++ {
		err := b.handle(ctx, c, m)
		if err == nil || ctx.Err() != nil {
			return
		}
		delay := retryDelay(try)
		b.log.Warn("message postponed", "consumer", c.Name, "subject", m.Subject, "sequence", m.Sequence, "delay", delay, "error", err)
		tick.Pause(ctx, delay)
	}
}

// handle handles a message once.
func (b *Bus) handle(ctx context.Context, c Consumer, m Message) error {
	var facts []event.Fact
	err := protect(func() (err error) {
		facts, err = c.Handle(ctx, m)
		return err
	})
	if errors.Is(err, ErrPoison) {
		return b.setAside(ctx, c.Name, c.Stream, m, err)
	}
	if err != nil {
		return err
	}
	for i := range facts {
		if facts[i].Cause == "" {
			facts[i].Cause, facts[i].TraceParent = m.Key, m.TraceParent
		}
	}
	return b.Publish(ctx, facts...)
}

// ackError lets the loop go on after a lost ack: the message comes again, and handlers may be repeated.
func ackError(err error) error {
	if err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}

// protect turns a panic into poison: one bad message must not take a service down, nor come back for ever.
func protect(handle func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: handler panicked: %v\n%s", ErrPoison, r, debug.Stack())
		}
	}()
	return handle()
}

// setAside moves a message to POISON.
func (b *Bus) setAside(ctx context.Context, consumer, stream string, m Message, reason error) error {
	const excerpt = 4 << 10
	b.log.Warn("message set aside", "consumer", consumer, "subject", m.Subject, "sequence", m.Sequence, "reason", reason)
	b.meter.setAside(consumer, 1)
	return b.Publish(ctx, event.Fact{
		Subject: event.Subject{Entity: "poison", ID: consumer, Fact: event.FactSetAside, Version: 1},
		Key:     fmt.Sprintf("poison/%s/%d/%s", stream, m.Sequence, consumer),
		Cause:   m.Key,
		Body: event.Poisoned{
			Subject: m.Subject, Stream: stream, Sequence: m.Sequence, Consumer: consumer, Reason: reason.Error(),
			Body: string(m.Data[:min(len(m.Data), excerpt)]), SizeBytes: len(m.Data),
		},
	})
}

func retryDelay(delivered uint64) time.Duration {
	return min(100*time.Millisecond<<min(delivered, 10), 30*time.Second)
}

// Follow reads a stream from a sequence on (0: only new messages; 1: everything) without a durable consumer, until ctx
// ends. It calls f in order, once per message, also across restarts of the server.
func (b *Bus) Follow(ctx context.Context, stream string, filters []string, from uint64, f func(Message)) error {
	next := from
	return b.persist(ctx, "stream "+stream, func(ctx context.Context) error {
		if next == 0 {
			last, err := b.LastSequence(ctx, stream)
			if err != nil {
				return err
			}
			next = last + 1
		}
		return b.follow(ctx, stream, filters, next, func(m Message) {
			if m.Sequence >= next {
				next = m.Sequence + 1
				f(m)
			}
		})
	})
}

// Between calls f with the messages of a stream on the given subjects whose sequences lie between two, these included,
// in order.
func (b *Bus) Between(ctx context.Context, stream string, filters []string, from, to uint64, f func(Message)) error {
	config := jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from}
	return b.storedWhile(ctx, stream, config, func(m Message) bool {
		if m.Sequence <= to {
			f(m)
		}
		return m.Sequence < to
	})
}

// persist repeats a reading loop until ctx ends: whatever interrupts it, the server comes back at some time. A message
// that was on its way when the connection broke comes to nobody, and no later message may come to show that: so each
// round of the loop ends with the connection.
func (b *Bus) persist(ctx context.Context, what string, read func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		round, end := b.unbroken(ctx)
		err := read(round)
		broken := round.Err() != nil
		end()
		if ctx.Err() == nil {
			b.log.Debug("reading interrupted", "what", what, "error", err)
		}
		if !broken {
			tick.Pause(ctx, 200*time.Millisecond)
		}
	}
	return nil
}

func (b *Bus) follow(ctx context.Context, stream string, filters []string, from uint64, f func(Message)) error {
	config := jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverNewPolicy}
	if from > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	}
	messages, err := b.read(ctx, stream, config)
	if err != nil {
		return fmt.Errorf("follow %s: %w", stream, err)
	}
	defer messages.end(ctx)
	for {
		raw, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("follow %s: %w", stream, err)
		}
		m, _, err := b.delivered(raw)
		if err != nil {
			return fmt.Errorf("follow %s: %w", stream, err)
		}
		f(m)
	}
}

// Stored calls f with the messages now in a stream on the given subjects (none: all), stored since a time (zero: all),
// in order, and returns.
func (b *Bus) Stored(ctx context.Context, stream string, filters []string, since time.Time, f func(Message)) error {
	return b.StoredWhile(ctx, stream, filters, since, func(m Message) bool {
		f(m)
		return true
	})
}

// StoredWhile is Stored, but returns as soon as f returns false.
func (b *Bus) StoredWhile(ctx context.Context, stream string, filters []string, since time.Time, f func(Message) bool) error {
	config := jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverAllPolicy}
	if !since.IsZero() {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	return b.storedWhile(ctx, stream, config, f)
}

// Newest calls f with the newest message of each subject of a stream that matches the filters, and returns.
func (b *Bus) Newest(ctx context.Context, stream string, filters []string, f func(Message)) error {
	config := jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}
	return b.storedWhile(ctx, stream, config, func(m Message) bool {
		f(m)
		return true
	})
}

func (b *Bus) storedWhile(ctx context.Context, stream string, config jetstream.OrderedConsumerConfig, f func(Message) bool) error {
	messages, err := b.read(ctx, stream, config)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream, b.cause(err))
	}
	defer messages.end(ctx)
	for pending := messages.pending; pending > 0; {
		raw, err := nextStored(ctx, messages)
		if err != nil {
			return fmt.Errorf("read stream %s: %w", stream, err)
		}
		m, meta, err := b.delivered(raw)
		if err != nil {
			return fmt.Errorf("read stream %s: %w", stream, err)
		}
		pending = meta.NumPending
		if !f(m) {
			return nil
		}
	}
	return nil
}

// nextStored bounds the wait for a stored message: the newest one may have expired meanwhile.
func nextStored(ctx context.Context, messages jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*requestTimeout)
	defer cancel()
	return messages.Next(jetstream.NextContext(ctx))
}

// LastSequence returns the sequence of the newest message of a stream.
func (b *Bus) LastSequence(ctx context.Context, stream string) (uint64, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("open stream %s: %w", stream, b.cause(err))
	}
	return s.CachedInfo().State.LastSeq, nil
}

// Pending returns how many messages of a stream a durable consumer has still to handle.
func (b *Bus) Pending(ctx context.Context, stream, consumer string) (uint64, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	c, err := b.js.Consumer(ctx, stream, consumer)
	if err != nil {
		return 0, fmt.Errorf("look at consumer %s: %w", consumer, b.cause(err))
	}
	info := c.CachedInfo()
	return info.NumPending + uint64(info.NumAckPending), nil
}

// Handled returns the sequence up to which a durable consumer has handled a stream.
func (b *Bus) Handled(ctx context.Context, stream, consumer string) (uint64, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	c, err := b.js.Consumer(ctx, stream, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at consumer %s: %w", consumer, err)
	}
	return c.CachedInfo().AckFloor.Stream, nil
}
