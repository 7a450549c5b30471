package energy

import (
	"context"
	"log/slog"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
)

// keepGrid refreshes the intensities until ctx ends, and writes the forecast for the planner if it has changed. Sources
// publish a new intensity each hour, some a quarter of an hour later.
func keepGrid(ctx context.Context, g *grid.Grid, rates *bus.KV[train.EnergyRates], log *slog.Logger) error {
	const every = 10 * time.Minute
	for range tick.Every(ctx, every) {
		if err := g.Refresh(ctx); err != nil && ctx.Err() == nil {
			log.Warn("carbon intensity unknown", "error", err)
		}
		if err := rates.Put(ctx, contract.RatesKey, g.Forecast(time.Now())); err != nil && ctx.Err() == nil {
			log.Warn("energy rates not published", "error", err)
		}
	}
	return nil
}
