package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// sweepEvery is the interval between two searches for records of ended jobs.
	sweepEvery = 10 * time.Minute
	// sweepTimeout bounds one search.
	sweepTimeout = time.Minute
)

// ForgetEnded deletes the records of jobs that ended long ago, until ctx ends. A record's key is the job's id, alone or
// before a dot. Such a record is no longer written, so any process may delete it. An agent that may not read jobs
// leaves that to others.
func ForgetEnded[T any](ctx context.Context, records *KV[T], jobs *KV[train.Job]) error {
	if records.bus.OfNode() {
		return nil
	}
	for range tick.Every(ctx, sweepEvery) {
		if err := forgetEnded(ctx, records, jobs, time.Now()); err != nil && ctx.Err() == nil {
			records.bus.log.Warn("old records stay for now", "bucket", records.bucket, "error", err)
		}
	}
	return nil
}

func forgetEnded[T any](ctx context.Context, records *KV[T], jobs *KV[train.Job], now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	all, err := records.List(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		id, _, _ := strings.Cut(r.Key, ".")
		job, err := jobs.Get(ctx, id)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrPoison) {
			continue // no record says that it has ended
		}
		if err != nil {
			return fmt.Errorf("check whether %s has ended: %w", id, err)
		}
		if !job.Value.LongEnded(now) {
			continue
		}
		if err := records.Delete(ctx, r.Key, r.Revision); err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return nil
}
