package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// leaseTime is how long a lease outlives its holder, renewEvery how often the holder renews it, by a synced write. A
// standby looks every lookEvery.
const (
	leaseTime  = 6 * time.Second
	renewEvery = 2 * time.Second
	lookEvery  = time.Second
)

// Claim asks for a lease.
type Claim struct {
	Task string
	// Holder names the process. A process that finds its own name in the lease takes it over at once, so two live
	// processes must not share a name.
	Holder string
	// Waiting, if not nil, is called with the holder of the lease whenever that changes while the claim waits.
	Waiting func(holder string)
}

// Lead runs f while the process holds the lease, again each time it regains it, until ctx ends or f returns an error.
// The term passed to f grows from holder to holder. The context of f ends when another process is seen to hold the
// lease.
//
// A lease keeps two processes from doing the same work, and no more: a holder that was paused, or cannot reach the bus,
// does not yet know that it has lost it. Whatever must not happen twice is guarded by compare-and-swap where it
// happens, and while the bus is away no process can do that.
func (b *Bus) Lead(ctx context.Context, c Claim, f func(ctx context.Context, term uint64) error) error {
	kv, err := OpenKV(ctx, b, contract.Leases)
	if err != nil {
		return stopped(ctx, err)
	}
	h := &holding{kv: kv, claim: c}
	for h.wait(ctx) {
		term, cancel := context.WithCancel(ctx)
		var renewing conc.WaitGroup
		why := ""
		renewing.Go(func() {
			defer cancel()
			why = h.keep(term)
		})
		err := f(term, h.term)
		lost := term.Err() != nil && ctx.Err() == nil
		cancel()
		renewing.Wait()
		if !lost {
			h.release(ctx)
			return err
		}
		b.log.Warn("lease lost", "task", c.Task, "term", h.term, "why", why)
	}
	return nil
}

// stopped drops the errors of an orderly stop.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// holding is a lease that a process waits for or holds.
type holding struct {
	kv    *KV[contract.Lease]
	claim Claim
	mine  contract.Lease
	// term is the revision that took the lease, revision that of the last renewal.
	term, revision uint64
}

// wait returns when the lease is held; it returns false if ctx ends first.
func (h *holding) wait(ctx context.Context) bool {
	stated := ""
	for range tick.Every(ctx, lookEvery) {
		holder, err := h.take(ctx)
		if err == nil {
			return true
		}
		if holder != "" && holder != stated && h.claim.Waiting != nil {
			stated = holder
			h.claim.Waiting(holder)
		}
	}
	return false
}

// take takes the lease if it is free, or still in the name of this process. Else it returns the holder.
func (h *holding) take(ctx context.Context) (holder string, err error) {
	h.mine = contract.Lease{Holder: h.claim.Holder, Since: time.Now().UTC(), Build: new(build.This())}
	e, err := h.kv.Get(ctx, h.claim.Task)
	switch {
	case errors.Is(err, ErrNotFound):
		h.revision, err = h.create(ctx)
	case err != nil && !errors.Is(err, ErrPoison):
		return "", err
	case err == nil && e.Value.Holder != h.claim.Holder:
		return e.Value.Holder, ErrConflict
	default:
		h.revision, err = h.write(ctx, e.Revision)
	}
	h.term = h.revision
	return "", err
}

// keep renews the lease until ctx ends or it is lost, and then returns why.
func (h *holding) keep(ctx context.Context) (why string) {
	renewed := time.Now()
	for range tick.After(ctx, renewEvery) {
		revision, err := h.write(ctx, h.revision)
		if err == nil {
			h.revision, renewed = revision, time.Now()
			continue
		}
		if !errors.Is(err, ErrConflict) {
			continue // the bus is away: no other process can take it
		}
		e, err := h.kv.Get(ctx, h.claim.Task)
		switch {
		case err == nil && e.Value.Holder == h.mine.Holder && e.Value.Since.Equal(h.mine.Since):
			h.revision = e.Revision // an earlier renewal was stored, but its answer was lost
		case err == nil:
			return "another process holds it: " + e.Value.Holder
		case errors.Is(err, ErrNotFound):
			return fmt.Sprintf("it ran out: the bus took no renewal for %s. No other process holds it, and this one asks for it again", time.Since(renewed).Round(time.Second))
		}
	}
	return ""
}

// release gives up the lease, so that the next holder need not wait for it to expire.
func (h *holding) release(ctx context.Context) {
	// Also at the end of ctx.
	ctx, cancel := exchange(context.WithoutCancel(ctx))
	defer cancel()
	if err := h.kv.Delete(ctx, h.claim.Task, h.revision); err != nil {
		h.kv.bus.log.Debug("lease not released, it runs out", "task", h.claim.Task, "error", err)
	}
}

func (h *holding) create(ctx context.Context) (uint64, error) {
	data, err := json.Marshal(h.mine)
	if err != nil {
		return 0, fmt.Errorf("encode the lease of %s: %w", h.claim.Task, err)
	}
	ctx, cancel := exchange(ctx)
	defer cancel()
	revision, err := h.kv.kv.Create(ctx, h.claim.Task, data, jetstream.KeyTTL(leaseTime))
	if errors.Is(err, jetstream.ErrKeyExists) || isWrongSequence(err) {
		return 0, fmt.Errorf("take the lease of %s: %w", h.claim.Task, ErrConflict)
	}
	return revision, err
}

// write renews the lease. An update through the bucket would drop the key's expiry, hence the plain message.
func (h *holding) write(ctx context.Context, revision uint64) (uint64, error) {
	data, err := json.Marshal(h.mine)
	if err != nil {
		return 0, fmt.Errorf("encode the lease of %s: %w", h.claim.Task, err)
	}
	ctx, cancel := exchange(ctx)
	defer cancel()
	ack, err := h.kv.bus.js.Publish(ctx, "$KV."+string(contract.Leases)+"."+h.claim.Task, data,
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(leaseTime))
	if isWrongSequence(err) {
		return 0, fmt.Errorf("renew the lease of %s: %w", h.claim.Task, ErrConflict)
	}
	if err != nil {
		return 0, fmt.Errorf("renew the lease of %s: %w", h.claim.Task, err)
	}
	return ack.Sequence, nil
}
