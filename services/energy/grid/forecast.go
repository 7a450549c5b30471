package grid

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// horizon is how far ahead energy is priced: as far as forecasts of carbon go.
	horizon = 72 * time.Hour
	// rateStep is the shortest interval between changes of tariffs and forecasts.
	rateStep = 15 * time.Minute
)

// Forecast returns the cost and carbon intensity of energy from now on. It ends with the last known intensity; without
// a tariff it is empty.
func (g *Grid) Forecast(now time.Time) train.EnergyRates {
	var forecast train.EnergyRates
	if g.config.File == "" {
		return forecast
	}
	c := g.Tariff.Carbon
	sourced := c.File != "" || c.URL != ""
	forecast.Until = now.UTC().Truncate(rateStep)
	for end := forecast.Until.Add(horizon); forecast.Until.Before(end); forecast.Until = forecast.Until.Add(rateStep) {
		p := g.Price(forecast.Until)
		if sourced && p.GramsPerKWh == nil {
			break
		}
		rate := train.EnergyRate{From: forecast.Until}
		if p.GramsPerKWh != nil {
			rate.GramsPerKWh = *p.GramsPerKWh
		}
		if p.PerKWh != nil {
			rate.PricePerKWh = *p.PerKWh
		}
		if n := len(forecast.Rates); n > 0 && forecast.Rates[n-1].GramsPerKWh == rate.GramsPerKWh && forecast.Rates[n-1].PricePerKWh == rate.PricePerKWh {
			continue
		}
		forecast.Rates = append(forecast.Rates, rate)
	}
	return forecast
}
