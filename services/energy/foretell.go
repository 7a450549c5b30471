package energy

import (
	"context"
	"reflect"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// foresight is how far ahead energy is priced: as far as forecasts of carbon go.
	foresight = 72 * time.Hour
	// rateStep is the finest at which tariffs and forecasts change.
	rateStep = 15 * time.Minute
)

// Foretold is what energy costs and stands for from now on. It ends where the source of intensities tells no more; without a tariff there is none.
func (g *Grid) Foretold(now time.Time) train.EnergyRates {
	var told train.EnergyRates
	if g.config.File == "" {
		return told
	}
	c := g.Tariff.Carbon
	sourced := c.File != "" || c.URL != ""
	told.Until = now.UTC().Truncate(rateStep)
	for end := told.Until.Add(foresight); told.Until.Before(end); told.Until = told.Until.Add(rateStep) {
		p := g.Price(told.Until)
		if sourced && p.GramsPerKWh == nil {
			break
		}
		rate := train.EnergyRate{From: told.Until}
		if p.GramsPerKWh != nil {
			rate.GramsPerKWh = *p.GramsPerKWh
		}
		if p.PerKWh != nil {
			rate.PricePerKWh = *p.PerKWh
		}
		if n := len(told.Rates); n > 0 && told.Rates[n-1].GramsPerKWh == rate.GramsPerKWh && told.Rates[n-1].PricePerKWh == rate.PricePerKWh {
			continue
		}
		told.Rates = append(told.Rates, rate)
	}
	return told
}

// foretell writes what is foretold for the planner, where it is new.
func foretell(ctx context.Context, rates *bus.KV[train.EnergyRates], told train.EnergyRates) error {
	_, err := rates.Modify(ctx, event.RatesKey, func(known *train.EnergyRates) (bool, error) {
		same := reflect.DeepEqual(*known, told)
		*known = told
		return !same, nil
	})
	return err
}
