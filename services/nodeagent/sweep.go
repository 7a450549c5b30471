package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
)

const (
	// sweepEvery is how often old reports are looked for.
	sweepEvery = 10 * time.Minute
	// sweepTimeout bounds one look.
	sweepTimeout = time.Minute
)

// sweep deletes old reports until ctx ends.
func sweep(ctx context.Context, t tables, log *slog.Logger) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if err := sweepReports(ctx, t, time.Now()); err != nil && ctx.Err() == nil {
			log.Warn("old reports stay for now", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// sweepReports deletes the reports of jobs that ended long ago. Nobody writes them any more, so it does not matter which node's agent does it.
func sweepReports(ctx context.Context, t tables, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	reports, err := t.reports.List(ctx)
	if err != nil {
		return err
	}
	for _, r := range reports {
		id, _, _ := strings.Cut(r.Key, ".")
		job, err := t.jobs.Get(ctx, id)
		if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrPoison) {
			continue // nothing says that it has ended
		}
		if err != nil {
			return fmt.Errorf("look whether %s has ended: %w", id, err)
		}
		if !job.Value.LongEnded(now) {
			continue
		}
		if err := t.reports.Delete(ctx, r.Key, r.Revision); err != nil && !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
	return nil
}
