package admission

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// keepEvery is the interval of housekeeping.
	keepEvery = time.Minute
	// keepTimeout bounds one round of housekeeping.
	keepTimeout = 30 * time.Second
	// mostOld bounds the number of records deleted at a time; the watch lists the others again.
	mostOld = 1000
)

// retention deletes the records of jobs that ended long ago. While the facts of a job are on the stream, its record
// must exist: otherwise a redelivered fact would be about an unknown job, and another job of the same id could not
// report its end.
type retention struct {
	jobs *bus.KV[train.Job]
	log  *slog.Logger
	keep time.Duration

	mu sync.Mutex
	// old holds the revisions of the records to delete.
	old map[string]uint64
}

// observe marks a record for deletion once its time has come.
func (r *retention) observe(now time.Time, e bus.Entry[*train.Job], deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := e.Value
	if deleted || !job.State.Terminal() || job.FinishedAt.IsZero() || now.Sub(job.FinishedAt) <= r.keep {
		delete(r.old, e.Key)
		return
	}
	if len(r.old) < mostOld {
		r.old[e.Key] = e.Revision
	}
}

// sweep deletes the marked records.
func (r *retention) sweep(ctx context.Context) error {
	r.mu.Lock()
	old := maps.Clone(r.old)
	clear(r.old)
	r.mu.Unlock()
	for key, revision := range old {
		if err := r.jobs.Delete(ctx, key, revision); err != nil && !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
	if len(old) > 0 {
		r.log.Info("old records deleted", "jobs", len(old))
	}
	return nil
}

const (
	// uploadsEvery is the interval at which uploads that no job needs are deleted.
	uploadsEvery = time.Hour
	// keepUploads is how long an uploaded folder stays after its job has ended, so that the job can be run again.
	keepUploads = 7 * 24 * time.Hour
)

// sweepUploads deletes uploads that no job needs, until ctx ends.
func (r *retention) sweepUploads(ctx context.Context, b *bus.Bus) error {
	for now := range tick.Every(ctx, uploadsEvery) {
		deleted, err := r.sweepUploadsOnce(ctx, b, now)
		switch {
		case err != nil && ctx.Err() == nil:
			r.log.Warn("old uploads stay for now", "error", err)
		case deleted > 0:
			r.log.Info("old uploads deleted", "uploads", deleted)
		}
	}
	return nil
}

func (r *retention) sweepUploadsOnce(ctx context.Context, b *bus.Bus, now time.Time) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	needed := sync.OnceValues(func() (map[string]bool, error) { return r.uploadsNeeded(ctx, now) })
	return b.SweepUploads(ctx, now, func(hash string) (bool, error) {
		of, err := needed()
		return of[hash], err
	})
}

// uploadsNeeded lists the register: the hashes of the folders of jobs that have not ended, or did so of late.
func (r *retention) uploadsNeeded(ctx context.Context, now time.Time) (map[string]bool, error) {
	jobs, err := r.jobs.List(ctx)
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{}
	for _, e := range jobs {
		if job := e.Value; !job.State.Terminal() || now.Sub(job.FinishedAt) < keepUploads {
			needed[job.Spec.Upload] = true
		}
	}
	return needed, nil
}

// fillAlarm warns of streams and buckets that will soon accept nothing more.
type fillAlarm struct {
	log    *slog.Logger
	meters *meters
	// warned holds the names already warned of.
	warned map[string]bool
}

// check warns once of each that is almost full, and again if it was not so in between.
func (a *fillAlarm) check(all []bus.Usage) {
	for _, u := range all {
		a.meters.fill.WithLabelValues(u.Name).Set(u.Share())
		if u.AlmostFull() && !a.warned[u.Name] {
			a.log.Warn("the bus is almost full: once full, jobs can be neither submitted nor reported", "stream",
				u.Name, "bytes", u.Bytes, "max_bytes", u.MaxBytes)
		}
		a.warned[u.Name] = u.AlmostFull()
	}
}

// housekeeping sweeps and checks until ctx ends.
func housekeeping(ctx context.Context, b *bus.Bus, r *retention, a *fillAlarm) error {
	for range tick.Every(ctx, keepEvery) {
		tidy(ctx, b, r, a)
	}
	return nil
}

func tidy(ctx context.Context, b *bus.Bus, r *retention, a *fillAlarm) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
		r.log.Warn("old records stay for now", "error", err)
	}
	all, err := b.Usage(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("bus usage unknown", "error", err)
		}
		return
	}
	a.check(all)
}
