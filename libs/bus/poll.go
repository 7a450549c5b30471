package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/identity"
)

const (
	// pollSoon is the pause before the second request: the first may have been answered by a replica that was behind.
	// Each further pause is twice as long, up to checkInterval.
	pollSoon = 500 * time.Millisecond
	// pollBatch is the number of messages that one request asks for.
	pollBatch = 256
)

// polling is scan without a consumer, for a client that may make none. The server republishes what it stores in a
// bucket (identity.Changes), so a change needs no request. Requests get the first list, and changes whose message was
// lost.
type polling[T any] struct {
	kv      *KV[T]
	filters []string
	// next is the sequence behind all that was read of each filter. gone says that the message before it was not there.
	next   []uint64
	gone   []bool
	f      message
	newest *atomic.Uint64
}

// change is a republished message, and the filter that it matches.
type change struct {
	filter int
	m      *nats.Msg
}

func (k *KV[T]) poll(ctx context.Context, filters []string, f message, newest *atomic.Uint64, synced func()) error {
	p := &polling[T]{k, filters, make([]uint64, len(filters)), make([]bool, len(filters)), f, newest}
	changes := make(chan change)
	for i, filter := range filters {
		p.next[i] = 1
		heard, err := k.bus.nc.Subscribe(identity.Changes(strings.TrimPrefix(filter, "$KV.")), func(m *nats.Msg) {
			select {
			case changes <- change{i, m}:
			case <-ctx.Done():
			}
		})
		if err != nil {
			return fmt.Errorf("listen for changes of %s: %w", k.bucket, err)
		}
		defer func() { _ = heard.Unsubscribe() }()
	}
	if err := p.ask(ctx); err != nil {
		return err
	}
	synced()
	for wait := pollSoon; ; {
		missed, err := p.hear(ctx, changes, time.After(wait))
		if err == nil {
			err = p.ask(ctx)
		}
		if err != nil {
			return err
		}
		if wait = min(2*wait, checkInterval); missed {
			wait = pollSoon
		}
	}
}

// hear applies changes until it is time to ask. missed says that one did not come.
func (p *polling[T]) hear(ctx context.Context, changes <-chan change, ask <-chan time.Time) (missed bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-ask:
			return false, nil
		case c := <-changes:
			sequence, err := p.sequence(c.m)
			if err != nil {
				return false, err
			}
			// A whole bucket has every sequence.
			if sequence > p.next[c.filter] && strings.HasSuffix(p.filters[c.filter], p.kv.bucket+".>") {
				return true, nil
			}
			p.apply(c.filter, sequence, c.m)
		}
	}
}

// ask reads what is behind that which was read. If the last message that was read is not there twice in a row, it has
// expired or the bucket was restored from a snapshot: then all is listed again.
func (p *polling[T]) ask(ctx context.Context) error {
	for i := range p.filters {
		for more := true; more; {
			found, rest, err := p.behind(ctx, i)
			if err != nil {
				return err
			}
			more = rest
			switch lost := found == 0 && p.next[i] > 1; {
			case lost && p.gone[i]:
				p.next[i], p.gone[i], more = 1, false, true
			default:
				p.gone[i] = lost
			}
		}
	}
	return nil
}

// directGet asks for messages of a stream.
type directGet struct {
	Sequence uint64 `json:"seq"`
	Next     string `json:"next_by_subj"`
	Batch    int    `json:"batch"`
}

// behind applies some messages of a filter, from the last one that was read on. more says that others follow.
func (p *polling[T]) behind(ctx context.Context, filter int) (found int, more bool, err error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	k := p.kv
	body, err := json.Marshal(directGet{max(p.next[filter]-1, 1), p.filters[filter], pollBatch})
	if err != nil {
		return 0, false, fmt.Errorf("encode a request: %w", err)
	}
	inbox := k.bus.nc.NewRespInbox()
	answers, err := k.bus.nc.SubscribeSync(inbox)
	if err != nil {
		return 0, false, fmt.Errorf("listen for messages of %s: %w", k.bucket, err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := k.bus.nc.PublishRequest("$JS.API.DIRECT.GET."+bucketPrefix+k.bucket, inbox, body); err != nil {
		return 0, false, fmt.Errorf("ask for messages of %s: %w", k.bucket, err)
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return found, false, fmt.Errorf("read %s: %w", k.bucket, k.bus.cause(err))
		}
		switch m.Header.Get("Status") {
		case "":
		case "404", "204": // nothing more, and the end of a batch
			return found, more, nil
		default:
			return found, false, fmt.Errorf("read %s: %w: %s", k.bucket, errAnswer, m.Header.Get("Description"))
		}
		sequence, err := p.sequence(m)
		if err != nil {
			return found, false, err
		}
		p.apply(filter, sequence, m)
		found++
		more = m.Header.Get("Nats-Num-Pending") != "0"
	}
}

// apply takes a message of a filter, unless it is known.
func (p *polling[T]) apply(filter int, sequence uint64, m *nats.Msg) {
	if sequence < p.next[filter] {
		return
	}
	p.f(strings.TrimPrefix(m.Header.Get(jetstream.SubjectHeader), "$KV."+p.kv.bucket+"."), sequence, m.Data)
	p.next[filter] = sequence + 1
	p.newest.Store(max(p.newest.Load(), sequence))
}

var errAnswer = errors.New("the server answers")

// sequence returns the sequence of a message that was requested or republished.
func (p *polling[T]) sequence(m *nats.Msg) (uint64, error) {
	sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the sequence of a message of %s: %w", p.kv.bucket, err)
	}
	return sequence, nil
}
