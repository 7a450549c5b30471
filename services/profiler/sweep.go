package profiler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// sweepEvery is how often old models are looked for.
	sweepEvery = 10 * time.Minute
	// sweepTimeout bounds one look.
	sweepTimeout = time.Minute
)

// sweeper deletes the models of jobs that ended long ago.
type sweeper struct {
	models *bus.KV[train.Model]
	jobs   *bus.KV[train.Job]
	log    *slog.Logger
}

// run sweeps until ctx ends.
func (s *sweeper) run(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if err := s.sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.log.Warn("old models stay for now", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *sweeper) sweep(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	models, err := s.models.List(ctx)
	if err != nil {
		return err
	}
	for _, m := range models {
		job, err := s.jobs.Get(ctx, m.Key)
		if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrPoison) {
			continue // nothing says that it has ended
		}
		if err != nil {
			return fmt.Errorf("look whether %s has ended: %w", m.Key, err)
		}
		if !job.Value.LongEnded(now) {
			continue
		}
		if err := s.models.Delete(ctx, m.Key, m.Revision); err != nil && !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
	return nil
}
