package admission

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// usageEvery is the interval at which the bus is asked how full it is, and usageTimeout bounds one such question.
	usageEvery, usageTimeout = time.Minute, 30 * time.Second
	// sweepEvery is the interval at which old records, and uploads that no job needs, are deleted. Each time all
	// records are read.
	sweepEvery = time.Hour
	// sweepTimeout bounds one look at all records.
	sweepTimeout = 5 * time.Minute
	// mostOld bounds the records deleted in one round, and with them what is held in memory.
	mostOld = 1000
)

// retention deletes the records of jobs that ended long ago. While the facts of a job are on the stream, its record
// must exist: otherwise a redelivered fact would be about an unknown job, and another job of the same id could not
// report its end.
type retention struct {
	jobs *bus.KV[train.Job]
	log  *slog.Logger
	// keep is how long a record stays after the end of its job; 0: for ever.
	keep time.Duration
}

// sweep deletes what is old until ctx ends. No change of a record tells that it has become old.
func (r *retention) sweep(ctx context.Context, b *bus.Bus) error {
	for now := range tick.Every(ctx, sweepEvery) {
		if deleted, err := r.sweepRecords(ctx, now); err != nil && ctx.Err() == nil {
			r.log.Warn("old records stay for now", "error", err)
		} else if deleted > 0 {
			r.log.Info("old records deleted", "jobs", deleted)
		}
		if deleted, err := r.sweepUploads(ctx, b, now); err != nil && ctx.Err() == nil {
			r.log.Warn("old uploads stay for now", "error", err)
		} else if deleted > 0 {
			r.log.Info("old uploads deleted", "uploads", deleted)
		}
	}
	return nil
}

// sweepRecords deletes old records in rounds until none is left, and returns how many there were.
func (r *retention) sweepRecords(ctx context.Context, now time.Time) (all int, err error) {
	if r.keep == 0 {
		return 0, nil
	}
	for {
		old, err := r.old(ctx, now)
		if err != nil {
			return all, err
		}
		deleted, err := r.delete(ctx, old)
		all += deleted
		if err != nil || deleted == 0 || len(old) < mostOld {
			return all, err
		}
	}
}

// old lists records whose time has come with their revisions, at most mostOld.
func (r *retention) old(ctx context.Context, now time.Time) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	old := map[string]uint64{}
	err := r.jobs.Each(ctx, func(e bus.Entry[train.Job]) bool {
		if job := e.Value; job.State.Terminal() && !job.FinishedAt.IsZero() && now.Sub(job.FinishedAt) > r.keep {
			old[e.Key] = e.Revision
		}
		return len(old) < mostOld
	})
	return old, err
}

// delete deletes records that have not changed meanwhile.
func (r *retention) delete(ctx context.Context, old map[string]uint64) (deleted int, err error) {
	for key, revision := range old {
		switch err := r.jobs.Delete(ctx, key, revision); {
		case err == nil:
			deleted++
		case !errors.Is(err, bus.ErrConflict):
			return deleted, err
		}
	}
	return deleted, nil
}

// keepUploads is how long an uploaded folder stays after its job has ended, so that the job can be run again.
const keepUploads = 7 * 24 * time.Hour

func (r *retention) sweepUploads(ctx context.Context, b *bus.Bus, now time.Time) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	needed := sync.OnceValues(func() (map[string]bool, error) { return r.uploadsNeeded(ctx, now) })
	return b.SweepUploads(ctx, now, func(hash string) (bool, error) {
		of, err := needed()
		return of[hash], err
	})
}

// uploadsNeeded lists the register: the hashes of the folders of jobs that have not ended, or did so of late.
func (r *retention) uploadsNeeded(ctx context.Context, now time.Time) (map[string]bool, error) {
	needed := map[string]bool{}
	err := r.jobs.Each(ctx, func(e bus.Entry[train.Job]) bool {
		if job := e.Value; job.Spec.Upload != "" && (!job.State.Terminal() || now.Sub(job.FinishedAt) < keepUploads) {
			needed[job.Spec.Upload] = true
		}
		return true
	})
	return needed, err
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

// watch checks until ctx ends.
func (a *fillAlarm) watch(ctx context.Context, b *bus.Bus) error {
	for range tick.Every(ctx, usageEvery) {
		round, cancel := context.WithTimeout(ctx, usageTimeout)
		all, err := b.Usage(round)
		cancel()
		if err == nil {
			a.check(all)
		} else if ctx.Err() == nil {
			a.log.Warn("bus usage unknown", "error", err)
		}
	}
	return nil
}
