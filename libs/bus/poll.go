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

	"github.com/switchyard-dl/switchyard/libs/tick"
)

const (
	// pollEvery is how often the agent of another machine looks for changes.
	pollEvery = 500 * time.Millisecond
	// pollBatch is the number of messages that one request asks for.
	pollBatch = 256
)

// poll is scan without a consumer, for who may make none: it asks again and again for the messages behind those that it
// has. A bucket keeps the newest message of each key, so the first round is the list.
func (k *KV[T]) poll(ctx context.Context, filters []string, f message, newest *atomic.Uint64, synced func()) error {
	next := make([]uint64, len(filters))
	for i := range next {
		next[i] = 1
	}
	listed := false
	for range tick.Every(ctx, pollEvery) {
		for i, filter := range filters {
			for more := true; more; {
				var err error
				more, err = k.behind(ctx, filter, &next[i], f)
				if err != nil {
					return err
				}
			}
			newest.Store(max(newest.Load(), next[i]-1))
		}
		if !listed {
			listed = true
			synced()
		}
	}
	return ctx.Err()
}

// directGet asks for messages of a stream.
type directGet struct {
	Sequence uint64 `json:"seq"`
	Next     string `json:"next_by_subj"`
	Batch    int    `json:"batch"`
}

// behind calls f with some messages from a sequence on, and moves it behind them. more says that others follow.
func (k *KV[T]) behind(ctx context.Context, filter string, next *uint64, f message) (more bool, err error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	body, err := json.Marshal(directGet{*next, filter, pollBatch})
	if err != nil {
		return false, fmt.Errorf("encode a request: %w", err)
	}
	inbox := k.bus.nc.NewRespInbox()
	answers, err := k.bus.nc.SubscribeSync(inbox)
	if err != nil {
		return false, fmt.Errorf("listen for messages of %s: %w", k.bucket, err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := k.bus.nc.PublishRequest("$JS.API.DIRECT.GET."+bucketPrefix+k.bucket, inbox, body); err != nil {
		return false, fmt.Errorf("ask for messages of %s: %w", k.bucket, err)
	}
	prefix := "$KV." + k.bucket + "."
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return false, fmt.Errorf("read %s: %w", k.bucket, k.bus.cause(err))
		}
		switch m.Header.Get("Status") {
		case "":
		case "404", "204": // nothing more, and the end of a batch
			return more, nil
		default:
			return false, fmt.Errorf("read %s: %w: %s", k.bucket, errAnswer, m.Header.Get("Description"))
		}
		key, sequence, err := placeOf(m)
		if err != nil {
			return false, fmt.Errorf("read %s: %w", k.bucket, err)
		}
		f(strings.TrimPrefix(key, prefix), sequence, m.Data)
		*next = sequence + 1
		more = m.Header.Get("Nats-Num-Pending") != "0"
	}
}

var errAnswer = errors.New("the server answers")

// placeOf returns the subject and the sequence of a message that was asked for.
func placeOf(m *nats.Msg) (subject string, sequence uint64, err error) {
	sequence, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	return m.Header.Get(jetstream.SubjectHeader), sequence, err
}
