package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/event"
)

// Lease is what the bucket "leases" holds under the name of a task that one process at a time does.
type Lease struct {
	// Holder is the process that has it, Since when it took it.
	Holder string    `json:"holder"`
	Since  time.Time `json:"since"`
}

// leaseTime is how long a lease outlives its holder, renewEvery how often that is put off. A standby looks as often.
const (
	leaseTime  = 5 * time.Second
	renewEvery = time.Second
)

// Claim asks for a lease.
type Claim struct {
	Task string
	// Holder names the process. One that finds its own name in the lease takes it over at once, so two that live at the same time must not share one.
	Holder string
	// Waiting, if not nil, is told who has the lease whenever that changes while the claim waits.
	Waiting func(holder string)
}

// Lead runs f while the process holds the lease, again each time when it has come back to it, until ctx ends or f returns an error. The term that f gets
// grows from holder to holder. Its context ends when somebody else is seen to have the lease.
//
// A lease keeps two processes from doing the same work, and that is all: a holder that was paused, or that cannot reach the bus, does not know yet that it
// has lost it. What must not happen twice is guarded by compare-and-swap where it happens, and while the bus is away nobody can do that.
func (b *Bus) Lead(ctx context.Context, c Claim, f func(ctx context.Context, term uint64) error) error {
	kv, err := OpenKV[Lease](ctx, b, event.BucketLeases)
	if err != nil {
		return stopped(ctx, err)
	}
	h := &holding{kv: kv, claim: c}
	for h.wait(ctx) {
		term, cancel := context.WithCancel(ctx)
		var renewing conc.WaitGroup
		renewing.Go(func() {
			defer cancel()
			h.keep(term)
		})
		err := f(term, h.term)
		lost := term.Err() != nil && ctx.Err() == nil
		cancel()
		renewing.Wait()
		if !lost {
			h.release(ctx)
			return err
		}
		b.log.Warn("lease lost to another process", "task", c.Task, "term", h.term)
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

// holding is a lease that is waited for or held.
type holding struct {
	kv    *KV[Lease]
	claim Claim
	mine  Lease
	// term is the revision with which the lease was taken, revision that of the last renewal.
	term, revision uint64
}

// wait returns when the lease is held; false when ctx ends first.
func (h *holding) wait(ctx context.Context) bool {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	said := ""
	for {
		holder, err := h.take(ctx)
		if err == nil {
			return true
		}
		if holder != "" && holder != said && h.claim.Waiting != nil {
			said = holder
			h.claim.Waiting(holder)
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// take takes the lease if it is free, or still in the name of this process. Else it gives the holder.
func (h *holding) take(ctx context.Context) (holder string, err error) {
	h.mine = Lease{Holder: h.claim.Holder, Since: time.Now().UTC()}
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

// keep renews the lease until ctx ends or it is another's.
func (h *holding) keep(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		revision, err := h.write(ctx, h.revision)
		if err == nil {
			h.revision = revision
			continue
		}
		if !errors.Is(err, ErrConflict) {
			continue // the bus is away: nobody else can take it
		}
		e, err := h.kv.Get(ctx, h.claim.Task)
		switch {
		case err == nil && e.Value.Holder == h.mine.Holder && e.Value.Since.Equal(h.mine.Since):
			h.revision = e.Revision // an earlier renewal was stored, its answer was not heard
		case err == nil, errors.Is(err, ErrNotFound):
			return
		}
	}
}

// release gives the lease up, so that the next one need not wait for it to run out.
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

// write renews the lease. An update through the bucket would drop the time at which the key runs out, hence the plain message.
func (h *holding) write(ctx context.Context, revision uint64) (uint64, error) {
	data, err := json.Marshal(h.mine)
	if err != nil {
		return 0, fmt.Errorf("encode the lease of %s: %w", h.claim.Task, err)
	}
	ctx, cancel := exchange(ctx)
	defer cancel()
	ack, err := h.kv.bus.js.Publish(ctx, "$KV."+event.BucketLeases+"."+h.claim.Task, data,
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(leaseTime))
	if isWrongSequence(err) {
		return 0, fmt.Errorf("renew the lease of %s: %w", h.claim.Task, ErrConflict)
	}
	if err != nil {
		return 0, fmt.Errorf("renew the lease of %s: %w", h.claim.Task, err)
	}
	return ack.Sequence, nil
}
