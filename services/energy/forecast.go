package energy

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
)

// keepGrid refreshes the intensities until ctx ends, and publishes the forecast each time. Sources publish a new
// intensity each hour, some a quarter of an hour later.
func keepGrid(ctx context.Context, g *grid.Grid, log *slog.Logger, publish func(context.Context, train.EnergyRates) error) error {
	const every = 10 * time.Minute
	for range tick.Every(ctx, every) {
		if err := g.Refresh(ctx); err != nil && ctx.Err() == nil {
			log.Warn("carbon intensity unknown", "error", err)
		}
		if err := publish(ctx, g.Forecast(time.Now())); err != nil && ctx.Err() == nil {
			log.Warn("energy rates not published", "error", err)
		}
	}
	return nil
}

// publishForecast writes the forecast for the planner if it has changed.
func publishForecast(ctx context.Context, rates *bus.KV[train.EnergyRates], forecast train.EnergyRates) error {
	_, err := rates.Modify(ctx, contract.RatesKey, func(known *train.EnergyRates) (bool, error) {
		same := reflect.DeepEqual(*known, forecast)
		*known = forecast
		return !same, nil
	})
	return err
}
