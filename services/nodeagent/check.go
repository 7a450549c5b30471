package nodeagent

import (
	"context"
	"fmt"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/services/nodeagent/attemptindex"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
)

// CompareMeters reads all meters that the settings name for a time, side by side. It uses neither bus nor jobs.
func (s *Service) CompareMeters(ctx context.Context, p run.Process, length time.Duration) ([]meter.Compared, error) {
	if err := s.Validate(p.Common); err != nil {
		return nil, err
	}
	sources, loops, err := s.metering.sources(p, s.kubernetes.Node)
	if err != nil {
		return nil, err
	}
	gpus, closeGPUs := s.openGPUs(p, attemptindex.New(nil))
	defer closeGPUs()
	comparison := meter.NewComparison(meter.Config{Proc: proc.Root("/proc"), Sources: sources, GPUs: gpus, Model: s.metering.model()})
	ctx, cancel := context.WithCancel(ctx)
	polling := pool.New().WithContext(ctx)
	for _, loop := range loops {
		polling.Go(loop)
	}
	defer func() { cancel(); _ = polling.Wait() }()
	began := time.Now()
	last := began
	for now := range tick.Every(ctx, s.metering.Interval) {
		elapsed := now.Sub(last)
		if last = now; now.Sub(began) < s.metering.Interval {
			elapsed = 0
		}
		if err := comparison.Read(elapsed); err != nil {
			return nil, err
		}
		if now.Sub(began) >= length {
			return comparison.Result(), nil
		}
	}
	return nil, fmt.Errorf("compare the meters: %w", ctx.Err())
}
