package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/event"
)

// Publish stores facts in order and returns when the server has them all on disk. It resends facts that the server does
// not answer, with the same key, until ctx ends. A fact may therefore be stored although Publish returns an error, but
// never twice within the stream's window of duplicates.
func (b *Bus) Publish(ctx context.Context, facts ...event.Fact) error {
	for _, f := range facts {
		if err := b.publish(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// PublishTogether is Publish for facts whose order does not matter. They wait for the server in the given order, but
// some may be stored before an earlier one.
func (b *Bus) PublishTogether(ctx context.Context, facts ...event.Fact) error {
	side := pool.New().WithErrors().WithFirstError().WithMaxGoroutines(consumeAtOnce)
	for _, f := range facts {
		stored := b.beginPublish(f)
		side.Go(func() error { return stored(ctx) })
	}
	return side.Wait()
}

func (b *Bus) publish(ctx context.Context, f event.Fact) error { return b.beginPublish(f)(ctx) }

// beginPublish puts a fact into the queue of its stream. What it returns must be called, and waits until the fact is
// stored.
func (b *Bus) beginPublish(f event.Fact) (stored func(context.Context) error) {
	msg, err := b.message(f)
	if err != nil {
		return func(context.Context) error { return err }
	}
	if f.Once {
		expect(msg, 0)
	}
	c := b.committer(event.StreamOf(f.Subject))
	first := c.enterFact(msg)
	return func(ctx context.Context) error {
		var permanent error
		err := retry(ctx, func() error {
			began, w := time.Now(), first
			if first = nil; w == nil {
				w = c.enterFact(msg)
			}
			_, err := c.await(ctx, w)
			b.meter.wrote(began, err)
			switch {
			case err == nil, f.Once && isWrongSequence(err):
				return nil // the fact, which may exist once, is already there
			case isForeign(err):
				permanent = fmt.Errorf("%w: %w", ErrForeign, err)
				return nil
			case isPermanent(err):
				permanent = err
				return nil
			}
			return b.cause(err)
		})
		if err = errors.Join(err, permanent); err != nil {
			return fmt.Errorf("publish %s: %w", f.Subject, err)
		}
		return nil
	}
}

// PublishAfter appends a fact if last is still the sequence of the newest one on its subject, else returns ErrConflict.
// It does not repeat: after any other error the caller reads the newest one and compares keys.
func (b *Bus) PublishAfter(ctx context.Context, f event.Fact, last uint64) (uint64, error) {
	return b.publishAfter(ctx, f, last, (*committer).write)
}

// PublishNext appends a fact if last is still the sequence of the newest fact about the same thing, whatever that fact
// is, else returns ErrConflict, also if the fact is that newest one. Like PublishAfter it does not repeat.
func (b *Bus) PublishNext(ctx context.Context, f event.Fact, last uint64) (uint64, error) {
	return b.publishAfter(ctx, f, last, func(c *committer, ctx context.Context, msg *nats.Msg) (uint64, error) {
		msg.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, f.Subject.About())
		return c.writeNew(ctx, msg)
	})
}

func (b *Bus) publishAfter(ctx context.Context, f event.Fact, last uint64, write func(*committer, context.Context, *nats.Msg) (uint64, error)) (uint64, error) {
	msg, err := b.message(f)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	expect(msg, last)
	sequence, err := write(b.committer(event.StreamOf(f.Subject)), ctx, msg)
	b.meter.wrote(began, err)
	if isWrongSequence(err) {
		err = ErrConflict
	}
	if err != nil {
		return 0, fmt.Errorf("publish %s after %d: %w", f.Subject, last, b.cause(err))
	}
	return sequence, nil
}

// expect has the server refuse a message if last is not the sequence of the newest one on its subject.
func expect(msg *nats.Msg, last uint64) {
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
}

// PublishOnce stores a fact as the first on its subject. An equal one that is there already makes this a repetition; a
// different one is ErrConflict.
func (b *Bus) PublishOnce(ctx context.Context, stream string, f event.Fact) (repeat bool, err error) {
	if _, err = b.PublishAfter(ctx, f, 0); err == nil {
		return false, nil
	}
	first, lastErr := b.Last(ctx, stream, f.Subject)
	switch {
	case errors.Is(lastErr, ErrNotFound):
		return false, b.Publish(ctx, f) // it did not arrive: try until it does
	case lastErr != nil:
		return false, err
	}
	body, err := f.Encode()
	if err == nil && string(first.Data) != string(body) {
		err = fmt.Errorf("publish %s once: %w", f.Subject, ErrConflict)
	}
	return err == nil, err
}

// Last reads the newest fact on a subject; ErrNotFound if the subject is empty.
func (b *Bus) Last(ctx context.Context, stream string, subject event.Subject) (Message, error) {
	raw, err := b.newest(ctx, stream, subject.String())
	return b.stored(fmt.Sprintf("the last %s", subject), raw, err)
}

// LastOf reads the body of the newest fact on a subject. found is false if there is none, or none that can be decoded.
func LastOf[T any](ctx context.Context, b *Bus, stream string, subject event.Subject) (body T, found bool, err error) {
	m, err := b.Last(ctx, stream, subject)
	if errors.Is(err, ErrNotFound) {
		return body, false, nil
	}
	if err != nil {
		return body, false, err
	}
	body, unreadable := event.Decode[T](m.Data)
	return body, unreadable == nil, nil
}

// At reads one message of a stream by its sequence; ErrNotFound if it is gone.
func (b *Bus) At(ctx context.Context, stream string, sequence uint64) (Message, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	raw, err := b.messages.GetMsg(stream, sequence, b.consistent(ctx)...)
	return b.stored(fmt.Sprintf("message %d of %s", sequence, stream), raw, err)
}

// newest reads the newest message on a subject.
func (b *Bus) newest(ctx context.Context, stream, subject string) (*nats.RawStreamMsg, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	return b.messages.GetLastMsg(stream, subject, b.consistent(ctx)...)
}

// consistent returns the options of a read that sees every write before it. In a cluster that is a read by the leader
// of the stream: a direct read is answered by any server with a replica, which may be behind. A single server has the
// only replica, and answers direct reads faster (BenchmarkReadOfARecord).
func (b *Bus) consistent(ctx context.Context) []nats.JSOpt {
	if b.nc.ConnectedClusterName() == "" {
		return []nats.JSOpt{nats.Context(ctx), nats.DirectGet()}
	}
	return []nats.JSOpt{nats.Context(ctx)}
}

func (b *Bus) stored(what string, raw *nats.RawStreamMsg, err error) (Message, error) {
	if errors.Is(err, nats.ErrMsgNotFound) {
		err = ErrNotFound
	}
	if err != nil {
		return Message{}, fmt.Errorf("read %s: %w", what, b.cause(err))
	}
	return b.newMessage(raw.Subject, raw.Header, raw.Data, raw.Sequence, raw.Time), nil
}

func (b *Bus) message(f event.Fact) (*nats.Msg, error) {
	body, err := f.Encode()
	if err != nil {
		return nil, err
	}
	data, encoding, err := event.Pack(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", f.Subject, err)
	}
	msg := nats.NewMsg(f.Subject.String())
	msg.Data = data
	if encoding != "" {
		msg.Header.Set(event.HeaderEncoding, encoding)
	}
	at := f.Time
	if at.IsZero() {
		at = time.Now()
	}
	msg.Header.Set(jetstream.MsgIDHeader, f.Key)
	msg.Header.Set(event.HeaderTime, at.UTC().Format(time.RFC3339Nano))
	msg.Header.Set(event.HeaderSource, cmp.Or(f.Source, b.name))
	if f.Cause != "" {
		msg.Header.Set(event.HeaderCause, f.Cause)
	}
	if err := b.vouch(msg, f); err != nil {
		return nil, err
	}
	if f.TraceParent != "" {
		msg.Header.Set(event.HeaderTraceParent, f.TraceParent)
	}
	return msg, nil
}

func isWrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

func isPermanent(err error) bool {
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrConnectionClosed)
}
