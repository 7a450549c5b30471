package planner

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

// usage is the device time that tenants have used, and the attempts that are not counted in it up to their end.
type usage struct {
	records.Usage
	// held are those attempts, by the keys of their reports. live has the key of each job that runs.
	held map[string]holding
	live map[string]string
	// ended are the tenants of jobs that have ended since the usage was counted last.
	ended map[string]string
	// news says that the usage has grown since it was written down.
	news bool
}

// holding is what an attempt holds. Its end is zero while it runs.
type holding struct {
	job string
	records.Held
}

func newUsage() usage {
	return usage{held: map[string]holding{}, live: map[string]string{}, ended: map[string]string{}}
}

// see takes note of an attempt, unless it is counted up to its end.
func (u *usage) see(a train.Attempt) {
	job, key := string(a.Job), records.ReportKey(a)
	if before := u.live[job]; before != "" && before != key {
		u.end(before, a.ClaimedAt) // its end was not seen
	}
	h := holding{job, records.Held{Devices: float64(a.DeviceCount()), From: a.StartedAt}}
	switch {
	case a.StartedAt.IsZero():
	case a.Live():
		u.held[key], u.live[job] = h, key
	default:
		if delete(u.live, job); a.ExitedAt.After(u.At) {
			u.held[key] = h
			u.end(key, a.ExitedAt)
		}
	}
}

func (u *usage) end(key string, at time.Time) {
	h := u.held[key]
	h.To = at
	if u.held[key] = h; at.IsZero() {
		delete(u.held, key)
	}
}

// forget drops the attempt of a job whose record is deleted.
func (u *usage) forget(job string) {
	delete(u.held, u.live[job])
	delete(u.live, job)
}

// leave takes note of the tenant of a job that has ended.
func (u *usage) leave(j *train.Job) {
	if j.FinishedAt.After(u.At) {
		u.ended[string(j.ID)] = j.Spec.Tenant
	}
}

// advance counts all up to now.
func (p *cache) advance(now time.Time) {
	u := &p.usage
	if u.HalfLife <= 0 || !now.After(u.At) {
		return
	}
	u.news = u.news || len(u.held) > 0
	u.Advance(now, p.holdings(now))
	for key, h := range u.held {
		if !h.To.IsZero() {
			delete(u.held, key)
		}
	}
	clear(u.ended)
}

func (p *cache) holdings(now time.Time) iter.Seq[records.Held] {
	return func(yield func(records.Held) bool) {
		for _, h := range p.usage.held {
			tenant, known := p.usage.ended[h.job]
			if j := p.jobs[h.job]; j != nil {
				tenant, known = j.Spec.Tenant, true
			}
			if !known {
				continue
			}
			h.Tenant = tenant
			if h.To.IsZero() {
				h.To = now
			}
			if !yield(h.Held) {
				return
			}
		}
	}
}

// usageEvery is how often the usage is written down. What an attempt has used since is counted from its record.
const usageEvery = time.Minute

// keepUsage reads the usage before anything is decided, and writes it down from time to time.
func keepUsage(ctx context.Context, b *bus.Bus, log *slog.Logger, known *cache, halfLife time.Duration, work *pool.ContextPool) error {
	kv, err := bus.OpenKV(ctx, b, contract.Usages)
	if err != nil {
		return err
	}
	stored, err := kv.Get(ctx, contract.UsageKey)
	if err != nil && !errors.Is(err, bus.ErrNotFound) && !errors.Is(err, bus.ErrPoison) {
		return err
	}
	known.usage.Usage = records.Usage{Usage: stored.Value, HalfLife: halfLife}
	work.Go(func(ctx context.Context) error {
		for range tick.After(ctx, usageEvery) {
			now, news := known.newUsage()
			if !news {
				continue
			}
			if err := kv.Put(ctx, contract.UsageKey, now); err != nil && ctx.Err() == nil {
				log.Warn("what tenants have used is not written down yet", "error", err)
			}
		}
		return nil
	})
	return nil
}

// newUsage returns the usage, and whether it has grown since the last call.
func (p *cache) newUsage() (contract.Usage, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.usage.news
	p.usage.news = false
	return p.usage.Usage.Usage, news
}
