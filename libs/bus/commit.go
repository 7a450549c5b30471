package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"
)

// committer writes to one stream. The server syncs its disk for each write. Writes that arrive during another one
// therefore follow it together, as one atomic batch.
type committer struct {
	bus    *Bus
	stream string
	// writing holds a token while a group is written.
	writing chan struct{}

	mu    sync.Mutex
	waits []*write
	// batches says whether the stream stores atomic batches; nil until that was asked.
	batches *bool
}

// write is a message that waits to be stored.
type write struct {
	msg  *nats.Msg
	done chan stored
}

// stored is the sequence of a message, or why it has none.
type stored struct {
	sequence uint64
	err      error
}

const (
	// mostTogether and mostBytes bound a group.
	mostTogether = 256
	mostBytes    = 4 << 20
	// fewestTogether is the least size of an atomic batch. The server makes a file for each batch, which takes longer than
	// to sync for each of fewer messages.
	fewestTogether = 6
)

// Headers of atomic batches.
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// committer returns the one of a stream.
func (b *Bus) committer(stream string) *committer {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.committers[stream]
	if c == nil {
		c = &committer{bus: b, stream: stream, writing: make(chan struct{}, 1)}
		b.committers[stream] = c
	}
	return c
}

// write stores a message and returns its sequence. After an error other than a refusal of the server it may be stored,
// too.
func (c *committer) write(ctx context.Context, msg *nats.Msg) (uint64, error) {
	w := &write{msg, make(chan stored, 1)}
	c.mu.Lock()
	c.waits = append(c.waits, w)
	c.mu.Unlock()
	for {
		select {
		case s := <-w.done:
			return s.sequence, s.err
		case <-ctx.Done():
			c.leave(w)
			return 0, ctx.Err()
		case c.writing <- struct{}{}:
			if group := c.next(); len(group) > 0 {
				c.writeGroup(ctx, group)
			}
			<-c.writing
		}
	}
}

// leave removes a write whose caller no longer waits.
func (c *committer) leave(w *write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = slices.DeleteFunc(c.waits, func(o *write) bool { return o == w })
}

// next takes the writes that go together.
func (c *committer) next() []*write {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(c.waits), mostTogether) {
		if bytes += len(c.waits[n].msg.Data); n > 0 && bytes > mostBytes {
			break
		}
		n++
	}
	group := c.waits[:n:n]
	c.waits = c.waits[n:]
	return group
}

// writeGroup stores messages together, or if the server refuses that, each on its own.
func (c *committer) writeGroup(ctx context.Context, group []*write) {
	ctx, cancel := exchange(context.WithoutCancel(ctx)) // it is not one caller's alone
	defer cancel()
	if len(group) >= fewestTogether && c.takesBatches(ctx) {
		last, err := c.writeBatch(ctx, group)
		if _, refused := errors.AsType[*jetstream.APIError](err); !refused {
			for i, w := range group {
				w.done <- stored{last - uint64(len(group)-1-i), err} //nolint:gosec // a count
			}
			return
		}
	}
	var each conc.WaitGroup
	for _, w := range group {
		each.Go(func() {
			sequence, err := c.writeOne(ctx, w.msg)
			w.done <- stored{sequence, err}
		})
	}
	each.Wait()
}

// writeOne stores a message. The server takes one whose key it knows for a repetition; but if the message with that key
// is on another subject, someone has given it the key of a fact to come, and this message is stored without a key.
func (c *committer) writeOne(ctx context.Context, msg *nats.Msg) (uint64, error) {
	ack, err := c.bus.js.PublishMsg(ctx, msg)
	if err != nil {
		return 0, err
	}
	if !ack.Duplicate {
		return ack.Sequence, nil
	}
	there, err := c.bus.At(ctx, c.stream, ack.Sequence)
	if err == nil && there.Subject != msg.Subject {
		c.bus.log.Warn("the key of a fact was taken by another message", "subject", msg.Subject, "key", there.Key, "taken_by", there.Subject, "sequence", there.Sequence)
		own := nats.NewMsg(msg.Subject)
		own.Data, own.Header = msg.Data, maps.Clone(msg.Header)
		own.Header.Del(jetstream.MsgIDHeader)
		if ack, err = c.bus.js.PublishMsg(ctx, own); err != nil {
			return 0, err
		}
	}
	return ack.Sequence, nil
}

// takesBatches says whether the stream stores atomic batches: an older server would store their messages one by one.
func (c *committer) takesBatches(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batches == nil {
		s, err := c.bus.js.Stream(ctx, c.stream)
		if err != nil {
			return false
		}
		c.batches = &s.CachedInfo().Config.AllowAtomicPublish
	}
	return *c.batches
}

// writeBatch stores all messages or none, and returns the sequence of the last one.
func (c *committer) writeBatch(ctx context.Context, group []*write) (uint64, error) {
	id := strings.TrimPrefix(c.bus.nc.NewInbox(), nats.InboxPrefix)
	for i, w := range group {
		msg := &nats.Msg{Subject: w.msg.Subject, Data: w.msg.Data, Header: nats.Header{}}
		maps.Copy(msg.Header, w.msg.Header)
		msg.Header.Set(headerBatchID, id)
		msg.Header.Set(headerBatchSequence, strconv.Itoa(i+1))
		if i < len(group)-1 {
			if err := c.bus.nc.PublishMsg(msg); err != nil {
				return 0, err
			}
			continue
		}
		msg.Header.Set(headerBatchCommit, "1")
		answer, err := c.bus.nc.RequestMsgWithContext(ctx, msg)
		if err != nil {
			return 0, err
		}
		return acknowledged(answer.Data, len(group))
	}
	return 0, nil
}

// acknowledged reads the answer to a batch.
func acknowledged(answer []byte, messages int) (uint64, error) {
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"`
		Count    int                 `json:"count"`
	}
	if err := json.Unmarshal(answer, &ack); err != nil {
		return 0, fmt.Errorf("read the answer to a batch: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	if ack.Sequence == 0 || ack.Count != messages {
		return 0, fmt.Errorf("the server stored %d messages of a batch of %d", ack.Count, messages)
	}
	return ack.Sequence, nil
}
