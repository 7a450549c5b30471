package admission

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// keepEvery is how often old records are deleted and the bus is looked at.
	keepEvery = time.Minute
	// keepTimeout bounds one time.
	keepTimeout = 30 * time.Second
	// mostOld bounds how many records are deleted at a time; the watch lists the others again.
	mostOld = 1000
)

// retention deletes the records of jobs that ended long ago. While the facts of a job are on the stream its record must be there, too: a fact that is
// delivered again would else be about a job that nobody knows, and another job of the same id could not tell its end.
type retention struct {
	jobs *bus.KV[train.Job]
	log  *slog.Logger
	keep time.Duration

	mu sync.Mutex
	// old are the revisions of the records to delete.
	old map[string]uint64
}

// see notes a record that may go.
func (r *retention) see(now time.Time, e bus.Entry[train.Job], deleted bool) {
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

// sweep deletes what was noted.
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

// alarm tells of streams and buckets that will soon take nothing more.
type alarm struct {
	log    *slog.Logger
	meters *meters
	// rung are those that were told of.
	rung map[string]bool
}

// look tells once of each that is almost full, and again when it was not so in between.
func (a *alarm) look(all []bus.Usage) {
	for _, u := range all {
		a.meters.filled(u.Name, u.Share())
		if u.AlmostFull() && !a.rung[u.Name] {
			a.log.Warn("the bus is almost full: when it is, jobs can neither be submitted nor told of", "stream", u.Name, "bytes", u.Bytes, "max_bytes", u.MaxBytes)
		}
		a.rung[u.Name] = u.AlmostFull()
	}
}

// housekeeping sweeps and looks until ctx ends.
func housekeeping(ctx context.Context, b *bus.Bus, r *retention, a *alarm) error {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	for {
		keepHouse(ctx, b, r, a)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func keepHouse(ctx context.Context, b *bus.Bus, r *retention, a *alarm) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
		r.log.Warn("old records stay for now", "error", err)
	}
	all, err := b.Usage(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("how full the bus is is not known", "error", err)
		}
		return
	}
	a.look(all)
}
