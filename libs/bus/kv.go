package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// KV is a typed view of a bucket.
type KV[T any] struct {
	bus    *Bus
	bucket string
	kv     jetstream.KeyValue
}

// Entry is a value with the revision that a change must name.
type Entry[T any] struct {
	Key      string
	Value    T
	Revision uint64
}

// OpenKV opens a bucket of the contract (made by Ensure).
func OpenKV[T any](ctx context.Context, b *Bus, bucket string) (*KV[T], error) {
	kv, err := b.js.KeyValue(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucket, err)
	}
	return &KV[T]{bus: b, bucket: bucket, kv: kv}, nil
}

// Get reads a key; ErrNotFound when there is none.
func (k *KV[T]) Get(ctx context.Context, key string) (Entry[T], error) {
	raw, err := k.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
		return Entry[T]{}, fmt.Errorf("read %s/%s: %w", k.bucket, key, ErrNotFound)
	}
	if err != nil {
		return Entry[T]{}, fmt.Errorf("read %s/%s: %w", k.bucket, key, err)
	}
	return k.decode(raw)
}

func (k *KV[T]) decode(raw jetstream.KeyValueEntry) (Entry[T], error) {
	e := Entry[T]{Key: raw.Key(), Revision: raw.Revision()}
	if err := json.Unmarshal(raw.Value(), &e.Value); err != nil {
		return e, fmt.Errorf("decode %s/%s: %w", k.bucket, raw.Key(), err)
	}
	return e, nil
}

// Swap writes a value if revision is still the newest one (0: the key does not exist), else returns ErrConflict.
func (k *KV[T]) Swap(ctx context.Context, key string, value T, revision uint64) (uint64, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return 0, fmt.Errorf("encode %s/%s: %w", k.bucket, key, err)
	}
	if revision == 0 {
		revision, err = k.kv.Create(ctx, key, data)
	} else {
		revision, err = k.kv.Update(ctx, key, data, revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || isWrongSequence(err) {
		return 0, fmt.Errorf("write %s/%s: %w", k.bucket, key, ErrConflict)
	}
	if err != nil {
		return 0, fmt.Errorf("write %s/%s: %w", k.bucket, key, err)
	}
	return revision, nil
}

// Modify reads a key, lets change work on the value (zero if there is none) and writes it back, again and again until nobody else came
// in between or ctx ends. When change returns false nothing is written. The value as it then stands is returned.
func (k *KV[T]) Modify(ctx context.Context, key string, change func(*T) (bool, error)) (Entry[T], error) {
	for {
		e, err := k.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return e, err
		}
		e.Key = key
		write, err := change(&e.Value)
		if err != nil || !write {
			return e, err
		}
		e.Revision, err = k.Swap(ctx, key, e.Value, e.Revision)
		if !errors.Is(err, ErrConflict) {
			return e, err
		}
		if ctx.Err() != nil {
			return e, err
		}
	}
}

// Delete removes a key if revision is still the newest one.
func (k *KV[T]) Delete(ctx context.Context, key string, revision uint64) error {
	err := k.kv.Delete(ctx, key, jetstream.LastRevision(revision))
	if isWrongSequence(err) {
		return fmt.Errorf("delete %s/%s: %w", k.bucket, key, ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("delete %s/%s: %w", k.bucket, key, err)
	}
	return nil
}

// List reads every entry of the bucket; patterns such as "job.*" narrow it.
func (k *KV[T]) List(ctx context.Context, patterns ...string) ([]Entry[T], error) {
	var entries []Entry[T]
	err := k.scan(ctx, patterns, func(w jetstream.KeyWatcher) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case raw, open := <-w.Updates():
				if !open {
					return ErrAway
				}
				if raw == nil {
					return nil
				}
				e, err := k.decode(raw)
				if err != nil {
					return err
				}
				entries = append(entries, e)
			}
		}
	}, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", k.bucket, err)
	}
	return entries, nil
}

func (k *KV[T]) scan(ctx context.Context, patterns []string, f func(jetstream.KeyWatcher) error, options ...jetstream.WatchOpt) error {
	if len(patterns) == 0 {
		patterns = []string{">"}
	}
	w, err := k.kv.WatchFiltered(ctx, patterns, options...)
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	return f(w)
}

// relistInterval bounds how long a watcher that missed something goes on with an old picture.
const relistInterval = 30 * time.Second

// Watch calls f with every entry and then with every change until ctx ends; deleted is set for a key that is gone. A watch is state, not
// events: revisions may be skipped and entries repeated (the whole bucket is listed again after a reconnect and every 30 s). synced, if not nil, is
// called each time when the picture is complete.
func (k *KV[T]) Watch(ctx context.Context, f func(e Entry[T], deleted bool), synced func()) error {
	wake, stop := k.bus.reconnects()
	defer stop()
	for ctx.Err() == nil {
		err := k.scan(ctx, nil, func(w jetstream.KeyWatcher) error { return k.drain(ctx, w, wake, f, synced) })
		if err != nil && ctx.Err() == nil {
			k.bus.log.Debug("watch interrupted", "bucket", k.bucket, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return nil
}

func (k *KV[T]) drain(ctx context.Context, w jetstream.KeyWatcher, wake <-chan struct{}, f func(Entry[T], bool), synced func()) error {
	again := time.NewTimer(relistInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
			return ErrAway
		case <-again.C:
			return nil
		case raw, open := <-w.Updates():
			switch {
			case !open:
				return ErrAway
			case raw == nil:
				if synced != nil {
					synced()
				}
			case raw.Operation() != jetstream.KeyValuePut:
				f(Entry[T]{Key: raw.Key(), Revision: raw.Revision()}, true)
			default:
				e, err := k.decode(raw)
				if err != nil {
					k.bus.log.Error("watch skips a value", "error", err)
					continue
				}
				f(e, false)
			}
		}
	}
}
