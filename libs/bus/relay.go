package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

var (
	// errFull says that agents report more than is stored.
	errFull = errors.New("too many reports wait: try again")
	// errBatch is the answer of a server without batches. An agent that gets it sends its messages one by one.
	errBatch error = &jetstream.APIError{Code: http.StatusBadRequest, ErrorCode: codeNoBatches, Description: "atomic publish is disabled"}
)

// ErrForeign says that an agent reports about another node, or about an attempt that does not run on its node.
var ErrForeign = errors.New("not of this node")

const (
	// codeForeign is how a relay refuses such a report, codeLater how it refuses one that may be repeated. The server
	// uses numbers around 10,000.
	codeForeign jetstream.ErrorCode = 31001
	codeLater   jetstream.ErrorCode = 31002
	// codeNoBatches is how a server refuses a batch for a stream that does not allow batches.
	codeNoBatches jetstream.ErrorCode = 10174
	// relayRoom is how many messages may wait for a relay, relayBytes how large those are that wait for the disk.
	relayRoom, relayBytes = 4096, 64 << 20
	// relayEvery is how often a relay writes to a stream: a message may wait for that long, unless the stream is idle.
	relayEvery = 100 * time.Millisecond
	// responsePrefix begins the subjects on which the server takes answers to another account.
	responsePrefix = "_R_."
	// headerImported is what the server says about a message that has crossed from another account.
	headerImported = "Nats-Request-Info"
)

// isForeign reports whether an answer is the refusal of a relay for good.
func isForeign(err error) bool {
	api, refused := errors.AsType[*jetstream.APIError](err)
	return refused && api.ErrorCode == codeForeign
}

// relay stores what the agents of other machines report.
type relay struct {
	*Bus
	// allow says whether a message of a node's agent may be stored.
	allow func(ctx context.Context, node string, m Message) error
	// waiting is the size of the messages that wait for the disk, room how large it may be before more are refused.
	waiting atomic.Int64
	room    int64
}

// Relay stores what the agents of other machines report, until ctx ends, if allow says that a node's agent may.
// ErrForeign is final for the agent; it tries again after any other error. Each agent has only a few messages at a
// time. If the server got them directly, it would sync its disk for each. The relay stores the messages of many agents
// in one batch. For the agents nothing else changes.
func (b *Bus) Relay(ctx context.Context, allow func(ctx context.Context, node string, m Message) error) error {
	return (&relay{Bus: b, allow: allow, room: relayBytes}).run(ctx)
}

func (r *relay) run(ctx context.Context) error {
	arrived := make(chan *nats.Msg, relayRoom)
	in, err := r.nc.ChanQueueSubscribe(identity.ReportPrefix+">", "switchyard", arrived)
	if err != nil {
		return fmt.Errorf("relay the reports of agents: %w", err)
	}
	defer func() { _ = in.Unsubscribe() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-arrived:
			r.note(m, r.take(ctx, m))
		}
	}
}

func (r *relay) note(m *nats.Msg, err error) {
	if err != nil {
		r.log.Debug("a report of an agent was not stored", "subject", m.Subject, "error", err)
	}
}

// take puts a message into the queue of its stream, or refuses it. It does not wait until the message is stored.
func (r *relay) take(ctx context.Context, m *nats.Msg) error {
	node, subject, _ := strings.Cut(strings.TrimPrefix(m.Subject, identity.ReportPrefix), ".")
	on := &nats.Msg{Subject: subject, Data: m.Data, Header: maps.Clone(m.Header)}
	on.Header.Del(headerImported)
	read := r.newMessage(subject, m.Header, m.Data, 0, time.Now())
	err := r.allow(ctx, node, read)
	switch {
	case err != nil:
	case on.Header.Get(headerBatchID) != "":
		err = errBatch
	case r.waiting.Load() > r.room:
		err = errFull
	}
	if err != nil {
		return errors.Join(err, r.answer(m, refusedReport(err)))
	}
	r.waiting.Add(int64(m.Size()))
	stream := event.StreamOf(read.Parsed)
	if bucket, is := strings.CutPrefix(subject, "$KV."); is {
		bucket, _, _ = strings.Cut(bucket, ".")
		stream = bucketPrefix + bucket
	}
	c := r.committerAt(pace{stream, relayEvery})
	w := &write{msg: on}
	// The server refuses a whole batch that has a deletion or a committer's question in it.
	store := func(ctx context.Context) (uint64, error) { return c.writeOne(ctx, w) }
	if on.Header.Get(headerRollup) == "" {
		w = c.enter(on, factID{})
		store = func(ctx context.Context) (uint64, error) { return c.await(ctx, w) }
	}
	r.beside(func() {
		defer r.waiting.Add(-int64(m.Size()))
		r.note(m, r.settle(ctx, m, stream, store))
	})
	return nil
}

// settle waits until a message is stored, at most as long as the agent waits, and answers the agent. The answer does
// not say whether the message was stored before: the committer has checked that already.
func (r *relay) settle(ctx context.Context, m *nats.Msg, stream string, store func(context.Context) (uint64, error)) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), storeTime) // thousands a second would lock ctx
	defer stop()
	sequence, err := store(ctx)
	if err != nil {
		return errors.Join(err, r.answer(m, refusedReport(err)))
	}
	stored, _ := json.Marshal(jetstream.PubAck{Stream: stream, Sequence: sequence}) //nolint:errchkjson // texts and a number
	return r.answer(m, stored)
}

// answer sends an answer to the agent, if the agent asked for one and the server chose the subject for it.
func (r *relay) answer(m *nats.Msg, data []byte) error {
	if !strings.HasPrefix(m.Reply, responsePrefix) {
		return nil
	}
	return r.nc.Publish(m.Reply, data)
}

// refusedReport returns a refusal in the form of the server's answers. A refusal by the server itself is not changed.
func refusedReport(err error) []byte {
	refusal := &jetstream.APIError{Code: http.StatusServiceUnavailable, ErrorCode: codeLater, Description: err.Error()}
	if of, is := errors.AsType[*jetstream.APIError](err); is {
		refusal = of
	}
	if errors.Is(err, ErrForeign) {
		refusal.Code, refusal.ErrorCode = http.StatusForbidden, codeForeign
	}
	data, _ := json.Marshal(map[string]any{"error": refusal}) //nolint:errchkjson // numbers and a text
	return data
}
