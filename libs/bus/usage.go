package bus

import (
	"context"
	"fmt"

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
		u, err := b.usage(ctx, s.Name)
		if err != nil {
			return nil, err
		}
		u.Refuses = !s.DropOld
		all = append(all, u)
	}
	for _, k := range contract.Buckets() {
		u, err := b.usage(ctx, "KV_"+k.Name)
		if err != nil {
			return nil, err
		}
		u.Name, u.Refuses = k.Name, true
		all = append(all, u)
	}
	return all, nil
}

func (b *Bus) usage(ctx context.Context, stream string) (Usage, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return Usage{}, fmt.Errorf("open stream %s: %w", stream, b.cause(err))
	}
	info := s.CachedInfo()
	return Usage{Name: stream, Bytes: int64(info.State.Bytes), MaxBytes: info.Config.MaxBytes}, nil
}
