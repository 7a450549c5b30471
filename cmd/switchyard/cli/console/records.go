package console

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// WithBus runs f on a connection of its own.
func (a *Console) WithBus(cmd *cobra.Command, f func(ctx context.Context, b *bus.Bus) error) error {
	b, err := a.Connect(cmd.Context())
	if err != nil {
		return err
	}
	defer b.Close()
	return f(cmd.Context(), b)
}

// OpenBucket opens a bucket of the contract. A bus on which no service ever ran does not have it, and one that has lost
// it has others.
func OpenBucket[T any](ctx context.Context, b *bus.Bus, bucket contract.Bucket[T]) (*bus.KV[T], error) {
	kv, err := bus.OpenKV(ctx, b, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if _, err := b.LastSequence(ctx, event.StreamJobs); err == nil {
			return nil, exit.Errorf(exit.Unreachable, "`switchyard repair --check` says what else is missing, `switchyard repair` makes it again",
				"the bus at %s has no bucket %s, although services of Switchyard have run on it", b.URL(), bucket)
		}
		return nil, exit.Errorf(exit.Unreachable, "start the services: `switchyard up`", "no service of Switchyard has run on the bus at %s", b.URL())
	}
	return kv, err
}

// ListTimeout bounds the reading of a whole bucket.
const ListTimeout = 15 * time.Second

// ListBucket reads the records whose keys match the patterns, or all.
func ListBucket[T any](ctx context.Context, b *bus.Bus, bucket contract.Bucket[T], patterns ...string) ([]T, error) {
	entries, err := listEntries(ctx, b, bucket, patterns)
	return bus.Values(entries), err
}

// MapBucket is ListBucket by key.
func MapBucket[T any](ctx context.Context, b *bus.Bus, bucket contract.Bucket[T], patterns ...string) (map[string]T, error) {
	entries, err := listEntries(ctx, b, bucket, patterns)
	return bus.ByKey(entries), err
}

func listEntries[T any](ctx context.Context, b *bus.Bus, bucket contract.Bucket[T], patterns []string) ([]bus.Entry[T], error) {
	ctx, cancel := context.WithTimeout(ctx, ListTimeout)
	defer cancel()
	kv, err := OpenBucket(ctx, b, bucket)
	if err != nil {
		return nil, err
	}
	return kv.List(ctx, patterns...)
}

// GetIfThere reads a key. found is false if it does not exist.
func GetIfThere[T any](ctx context.Context, b *bus.Bus, bucket contract.Bucket[T], key string) (value T, found bool, err error) {
	kv, err := OpenBucket(ctx, b, bucket)
	if err != nil {
		return value, false, err
	}
	e, err := kv.Get(ctx, key)
	if errors.Is(err, bus.ErrNotFound) {
		return value, false, nil
	}
	return e.Value, err == nil, err
}

// LastIfThere reads the newest fact on a subject.
func LastIfThere[T any](ctx context.Context, b *bus.Bus, stream string, subject event.Subject) (body T, found bool, err error) {
	m, err := b.Last(ctx, stream, subject)
	if errors.Is(err, bus.ErrNotFound) {
		return body, false, nil
	}
	if err != nil {
		return body, false, err
	}
	body, err = event.Decode[T](m.Data)
	return body, err == nil, err
}
