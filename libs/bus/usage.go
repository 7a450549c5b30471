package bus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// almostFull is the share of a stream's room above which an operator should act.
const almostFull = 0.8

// Usage says how full a stream or a bucket is.
type Usage struct {
	// Name is the name of the stream or bucket.
	Name            string
	Bytes, MaxBytes int64
	// Refuses reports that it accepts nothing more when full; others drop their oldest messages.
	Refuses bool
}

// Share returns the used part of its room.
func (u Usage) Share() float64 {
	if u.MaxBytes <= 0 {
		return 0
	}
	return float64(u.Bytes) / float64(u.MaxBytes)
}

// AlmostFull reports whether the stream or bucket will soon refuse messages.
func (u Usage) AlmostFull() bool { return u.Refuses && u.Share() >= almostFull }

// Usage reads how full the streams and buckets of the contract are.
func (b *Bus) Usage(ctx context.Context) ([]Usage, error) {
	var all []Usage
	for _, s := range event.Streams() {
		u, err := b.UsageOf(ctx, s.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	for _, k := range contract.Buckets() {
		u, err := b.UsageOf(ctx, bucketPrefix+k.Name)
		if err != nil {
			return nil, err
		}
		u.Name = k.Name
		all = append(all, u)
	}
	return all, nil
}

// UsageOf reads how full a stream is.
func (b *Bus) UsageOf(ctx context.Context, stream string) (Usage, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return Usage{}, fmt.Errorf("open stream %s: %w", stream, b.cause(err))
	}
	info := s.CachedInfo()
	return Usage{stream, int64(info.State.Bytes), info.Config.MaxBytes, info.Config.Discard == jetstream.DiscardNew}, nil
}

// Meter counts what connections do. It may be shared by several. A nil Meter counts nothing.
type Meter struct {
	// Wrote is called with the time from a write to its acknowledgement, which includes the wait for its turn and a sync
	// of the server's disk.
	Wrote func(took time.Duration)
	// Reconnected is called when the server is back. SetAside is called with the messages of a consumer that become
	// poison; with none when it begins, so that its first ones are seen as growth.
	Reconnected func()
	SetAside    func(consumer string, messages int)

	mu   sync.Mutex
	lags map[string]Lag
}

// Lag is how far a consumer is behind its stream.
type Lag struct {
	Consumer string
	// Pending is how many messages it has still to handle, OldestStored when the oldest of them was stored; zero without
	// any.
	Pending      uint64
	OldestStored time.Time
}

// Lags returns how far the consumers are behind.
func (m *Meter) Lags() []Lag {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Lag, 0, len(m.lags))
	for _, l := range m.lags {
		all = append(all, l)
	}
	return all
}

func (m *Meter) behind(l Lag) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lags == nil {
		m.lags = map[string]Lag{}
	}
	m.lags[l.Consumer] = l
}

func (m *Meter) wrote(began time.Time, err error) {
	if err == nil && m != nil && m.Wrote != nil {
		m.Wrote(time.Since(began))
	}
}

func (m *Meter) reconnected() {
	if m != nil && m.Reconnected != nil {
		m.Reconnected()
	}
}

func (m *Meter) setAside(consumer string, messages int) {
	if m != nil && m.SetAside != nil {
		m.SetAside(consumer, messages)
	}
}
