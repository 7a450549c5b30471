package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// committer writes to one stream. The server syncs its disk for each write. Writes that arrive during another one
// therefore follow it together, as one atomic batch. At most one group is under way: under overload all others wait
// here, where they cost the server nothing, until their turn comes or their caller gives up.
type committer struct {
	bus *Bus
	pace
	// batches says whether the stream stores atomic batches; nil until that was asked. It belongs to run.
	batches *bool

	mu    sync.Mutex
	waits []*write
	// running says that run takes what waits.
	running bool
	// facts are the writes of facts that wait or are under way.
	facts map[factID]*write
	// cut ends the exchange that is under way; nil without one.
	cut context.CancelCauseFunc
}

// pace is how a committer writes to a stream.
type pace struct {
	stream string
	// every is the least time between two groups. Larger ones cost the server less: it makes files for each.
	every time.Duration
}

// write is a message that waits to be stored, for one or more callers.
type write struct {
	msg  *nats.Msg
	fact factID
	// callers is how many still wait for it.
	callers int
	// done is closed when sequence and err are final: the sequence of the message, or why it has none.
	done     chan struct{}
	sequence uint64
	err      error
	// repeats says that the server had stored the message before.
	repeats bool
}

// factID identifies a fact: a second one with the same is a repetition. It is zero for other messages.
type factID struct{ subject, key string }

const (
	// mostTogether and mostBytes bound a group. The server takes 1,000 messages in a batch by default.
	mostTogether = 1000
	mostBytes    = 4 << 20
	// fewestTogether is the least size of an atomic batch. The server makes a file for each batch, which takes longer than
	// to sync for each of fewer messages.
	fewestTogether = 6
	// storeTime bounds the wait for the server to store a group. A writer that gives up too early writes again what is
	// stored.
	storeTime = 5 * time.Second
	// busyDelay is the wait before a batch is sent again to a server that has too many under way. It doubles each time.
	busyDelay, busyTries = 25 * time.Millisecond, 5
)

// Headers of atomic batches.
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// committer returns the one of a stream that writes at once.
func (b *Bus) committer(stream string) *committer { return b.committerAt(pace{stream: stream}) }

func (b *Bus) committerAt(p pace) *committer {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.committers[p]
	if c == nil {
		c = &committer{bus: b, pace: p, facts: map[factID]*write{}}
		b.committers[p] = c
	}
	return c
}

// enterFact is enter for a fact that may be repeated: if the same one waits or is under way already, its result is
// theirs both.
func (c *committer) enterFact(msg *nats.Msg) *write {
	return c.enter(msg, factID{msg.Subject, msg.Header.Get(jetstream.MsgIDHeader)})
}

// write stores a message and returns its sequence. It waits for its turn until ctx ends. After an error other than a
// refusal of the server the message may be stored, too.
func (c *committer) write(ctx context.Context, msg *nats.Msg) (uint64, error) {
	return c.await(ctx, c.enter(msg, factID{}))
}

// writeNew is write, but returns ErrConflict if the message was stored before.
func (c *committer) writeNew(ctx context.Context, msg *nats.Msg) (uint64, error) {
	w := c.enter(msg, factID{})
	sequence, err := c.await(ctx, w)
	if err == nil && w.repeats {
		return 0, ErrConflict
	}
	return sequence, err
}

func (c *committer) await(ctx context.Context, w *write) (uint64, error) {
	select {
	case <-w.done:
		return w.sequence, w.err
	case <-ctx.Done():
		c.leave(w)
		return 0, ctx.Err()
	}
}

// run writes what waits.
func (c *committer) run() {
	for group := c.next(); len(group) > 0; group = c.next() {
		began := time.Now()
		c.writeGroup(group)
		if wait := c.every - time.Since(began); wait > 0 && c.waiting() < mostTogether {
			tick.Pause(context.Background(), wait)
		}
	}
}

func (c *committer) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waits)
}

// enter puts a message into the queue.
func (c *committer) enter(msg *nats.Msg, fact factID) *write {
	w := &write{msg: msg, fact: fact, callers: 1, done: make(chan struct{})}
	if int64(msg.Size()) > c.bus.nc.MaxPayload()-headerRoom {
		w.err = nats.ErrMaxPayload // it would spoil the batch of others
		close(w.done)
		return w
	}
	w, start := c.queue(w)
	if start {
		c.bus.beside(c.run)
	}
	return w
}

// queue returns the write to wait for, and whether run must be started.
func (c *committer) queue(w *write) (_ *write, start bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.fact.key != "" {
		if same := c.facts[w.fact]; same != nil {
			same.callers++
			return same, false
		}
		c.facts[w.fact] = w
	}
	c.waits = append(c.waits, w)
	start = !c.running
	c.running = true
	return w, start
}

// leave takes a caller away. A write without any is dropped when its turn comes.
func (c *committer) leave(w *write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.callers--
}

// settle ends a write.
func (c *committer) settle(w *write, sequence uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.facts[w.fact] == w {
		delete(c.facts, w.fact)
	}
	w.sequence, w.err = sequence, err
	close(w.done)
}

// next takes the writes that go together: the first ones whose callers still wait. The server refuses a batch
// that has a key twice, or a subject twice whose sequence is compared; the second one stays for the next group.
func (c *committer) next() (group []*write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var held []*write
	bytes, keys, subjects := 0, map[string]bool{}, map[string]bool{}
	n := 0
	for ; n < len(c.waits) && len(group) < mostTogether && len(held) < mostTogether; n++ {
		w := c.waits[n]
		if w.callers == 0 {
			delete(c.facts, w.fact)
			continue
		}
		if bytes += len(w.msg.Data); len(group) > 0 && bytes > mostBytes {
			break
		}
		key, compared := w.msg.Header.Get(jetstream.MsgIDHeader), w.msg.Header.Get(jetstream.ExpectedLastSubjSeqHeader) != ""
		other, again := subjects[w.msg.Subject]
		if key != "" && keys[key] || again && (other || compared) {
			held = append(held, w)
			continue
		}
		keys[key], subjects[w.msg.Subject] = true, compared
		group = append(group, w)
	}
	c.waits = append(held, c.waits[n:]...)
	c.running = len(group) > 0
	return group
}

// writeGroup stores messages together. If the server refuses that, it asks about each message, and stores together
// those against which nothing speaks.
func (c *committer) writeGroup(group []*write) {
	began := time.Now()
	ctx, end := c.exchange()
	defer end()
	for refusals := 0; len(group) >= fewestTogether && refusals < 2 && c.takesBatches(ctx); {
		last, err := c.writeBatch(ctx, group)
		if _, refused := errors.AsType[*jetstream.APIError](err); !refused {
			c.bus.answered(began, err)
			for i, w := range group {
				c.settle(w, last-uint64(len(group)-1-i), failure(ctx, err))
			}
			return
		}
		before := len(group)
		if group = c.ask(ctx, group); len(group) == before {
			refusals++ // for a reason that is no message's alone
		}
	}
	var each conc.WaitGroup
	for _, w := range group {
		each.Go(func() {
			sequence, err := c.writeOne(ctx, w)
			c.bus.answered(began, err)
			c.settle(w, sequence, failure(ctx, err))
		})
	}
	each.Wait()
}

// exchange bounds an exchange with the server, also by the connection: a request that was under way when that broke
// has no answer.
func (c *committer) exchange() (context.Context, func()) {
	ctx, stop := context.WithTimeout(context.Background(), storeTime) // it is not one caller's alone
	ctx, cut := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cut = nil
		cut(nil)
		stop()
	}
}

// disconnected ends the exchange that is under way.
func (c *committer) disconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut != nil {
		c.cut(nats.ErrDisconnected)
	}
}

// failure is why an exchange has failed.
func failure(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Cause(ctx)
	}
	return err
}

// headerRollup with a value that the server does not know has it refuse a message that it would otherwise store. It
// looks at this header last, and before it writes anything.
const (
	headerRollup  = "Nats-Rollup"
	unknownRollup = "none"
	// codeUnknownRollup is how it refuses that.
	codeUnknownRollup jetstream.ErrorCode = 10111
)

// ask settles the writes that the server refuses or has stored already, and returns the others. It does not sync its
// disk for that.
func (c *committer) ask(ctx context.Context, group []*write) []*write {
	storable := make([]bool, len(group))
	var each conc.WaitGroup
	for i, w := range group {
		each.Go(func() {
			question := &nats.Msg{Subject: w.msg.Subject, Data: w.msg.Data, Header: maps.Clone(w.msg.Header)}
			question.Header.Set(headerRollup, unknownRollup)
			ack, err := c.bus.js.PublishMsg(ctx, question)
			if api, refused := errors.AsType[*jetstream.APIError](err); refused && api.ErrorCode == codeUnknownRollup {
				storable[i] = true
				return
			}
			sequence, err := c.stored(ctx, w, ack, err)
			c.settle(w, sequence, failure(ctx, err))
		})
	}
	each.Wait()
	var rest []*write
	for i, w := range group {
		if storable[i] {
			rest = append(rest, w)
		}
	}
	return rest
}

// writeOne stores a message.
func (c *committer) writeOne(ctx context.Context, w *write) (uint64, error) {
	ack, err := c.bus.js.PublishMsg(ctx, w.msg)
	return c.stored(ctx, w, ack, err)
}

// stored returns the sequence of a message with such an answer. The server takes one whose key it knows for a
// repetition; but if the message with that key is on another subject, someone has given it the key of a fact to come,
// and this message is stored without a key.
func (c *committer) stored(ctx context.Context, w *write, ack *jetstream.PubAck, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	if !ack.Duplicate {
		return ack.Sequence, nil
	}
	msg := w.msg
	there, err := c.bus.At(ctx, c.stream, ack.Sequence)
	w.repeats = err == nil && there.Subject == msg.Subject
	if err == nil && !w.repeats {
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

// takesBatches says whether the stream stores atomic batches: an older server would store their messages one by one. A
// relay makes larger batches than the agent of a node could.
func (c *committer) takesBatches(ctx context.Context) bool {
	if c.bus.OfNode() {
		return false
	}
	if c.batches == nil {
		s, err := c.bus.js.Stream(ctx, c.stream)
		if err != nil {
			return false
		}
		c.batches = &s.CachedInfo().Config.AllowAtomicPublish
	}
	return *c.batches
}

// writeBatch stores all messages or none, and returns the sequence of the last one. It waits while the server has too
// many batches under way.
func (c *committer) writeBatch(ctx context.Context, group []*write) (last uint64, err error) {
	delay := busyDelay
	for range busyTries {
		last, err = c.sendBatch(ctx, group)
		api, refused := errors.AsType[*jetstream.APIError](err)
		if !refused || api.ErrorCode != codeIncomplete && api.ErrorCode != codeTooMany || !tick.Pause(ctx, delay) {
			break
		}
		delay *= 2
	}
	return last, err
}

// How the server refuses the first message of a batch too many, and those behind it.
const (
	codeTooMany    jetstream.ErrorCode = 10210
	codeIncomplete jetstream.ErrorCode = 10176
)

func (c *committer) sendBatch(ctx context.Context, group []*write) (uint64, error) {
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
