package planner

import (
	"context"

	"github.com/switchyard-dl/switchyard/libs/bus"
)

// ownRecords are the records of a bucket that this process alone writes. It reads them once, and again after a write
// with an unknown outcome.
type ownRecords[V any] struct {
	kv *bus.KV[V]
	// known is the content of the bucket; nil if it has to be read.
	known map[string]bus.Entry[V]
}

// load reads the bucket, if it has to be read.
func (r *ownRecords[V]) load(ctx context.Context) error {
	if r.known != nil {
		return nil
	}
	entries, err := r.kv.List(ctx)
	if err != nil {
		return err
	}
	r.known = make(map[string]bus.Entry[V], len(entries))
	for _, e := range entries {
		r.known[e.Key] = e
	}
	return nil
}

// put writes a record.
func (r *ownRecords[V]) put(ctx context.Context, key string, value V) error {
	revision, err := r.kv.Swap(ctx, key, value, r.known[key].Revision)
	if err != nil {
		r.known = nil
		return err
	}
	r.known[key] = bus.Entry[V]{Key: key, Value: value, Revision: revision}
	return nil
}

// keep deletes the records with other keys than those that are needed.
func (r *ownRecords[V]) keep(ctx context.Context, needed func(key string) bool) error {
	for key, e := range r.known {
		if needed(key) {
			continue
		}
		if err := r.kv.Delete(ctx, key, e.Revision); err != nil {
			r.known = nil
			return err
		}
		delete(r.known, key)
	}
	return nil
}
