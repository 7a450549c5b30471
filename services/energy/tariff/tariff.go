// Package tariff computes the price and the carbon intensity of a kilowatt-hour at a time, and the overhead of the
// building. It reads texts, not files.
package tariff

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a minimal image has no time zones

	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Tariff is the energy contract of a site, as in its YAML file.
type Tariff struct {
	Currency string `json:"currency"`
	// Timezone is the time zone of the periods (default UTC).
	Timezone string `json:"timezone"`
	// PerKWh is the price outside all periods.
	PerKWh *float64 `json:"price_per_kwh"`
	// Periods change the price by time of use; the first matching one counts.
	Periods []Period `json:"periods"`
	// PUE is the facility's energy divided by the machines' energy (default 1: the facility is unknown).
	PUE    float64 `json:"pue"`
	Carbon Carbon  `json:"carbon"`

	zone *time.Location
}

// Period is a part of the week.
type Period struct {
	Name string `json:"name"`
	// Days are mon, tue, .. sun (empty: all); From and To are times of day, 07:00 to 20:00; a To at or before From is
	// on the next day.
	Days   []string `json:"days"`
	From   string   `json:"from"`
	To     string   `json:"to"`
	PerKWh float64  `json:"price_per_kwh"`

	from, to time.Duration
}

// Carbon names the source of the intensity: one number, a file, or an address that answers as Electricity Maps does.
type Carbon struct {
	GramsPerKWh *float64 `json:"grams_per_kwh"`
	File        string   `json:"file"`
	URL         string   `json:"url"`
	// Source is the source to name in a report.
	Source string `json:"source"`
}

// Price is the price and carbon intensity of a kilowatt-hour at a time; nil if unknown.
type Price struct {
	PerKWh      *float64
	GramsPerKWh *float64
	// Estimated reports that the source of the intensity did not measure it.
	Estimated bool
	// PUE is the facility's energy divided by the machines' energy.
	PUE float64
}

// Parse parses a tariff, and reports every wrong setting at once.
func Parse(text []byte) (Tariff, error) {
	t := Tariff{PUE: 1, Timezone: "UTC"}
	if err := strict.Decode(text, strict.Options{Words: true, Nulls: true}, &t); err != nil {
		return Tariff{}, fmt.Errorf("read tariff: %w", err)
	}
	var errs []error
	zone, err := time.LoadLocation(t.Timezone)
	if err != nil {
		errs = append(errs, fmt.Errorf("timezone: %w", err))
	}
	t.zone = zone
	if t.PUE < 1 {
		errs = append(errs, fmt.Errorf("pue %g: want 1 or more", t.PUE))
	}
	if t.PerKWh != nil && *t.PerKWh < 0 {
		errs = append(errs, fmt.Errorf("price_per_kwh %g: want 0 or more", *t.PerKWh))
	}
	for i := range t.Periods {
		errs = append(errs, t.Periods[i].settle())
	}
	sources := 0
	for _, given := range []bool{t.Carbon.GramsPerKWh != nil, t.Carbon.File != "", t.Carbon.URL != ""} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		errs = append(errs, errors.New("carbon: want one of grams_per_kwh, file and url"))
	}
	return t, errors.Join(errs...)
}

func (p *Period) settle() error {
	var errs [2]error
	p.from, errs[0] = timeOfDay(p.From)
	p.to, errs[1] = timeOfDay(p.To)
	wrong := errors.Join(errs[:]...)
	for i, d := range p.Days {
		p.Days[i] = strings.ToLower(strings.TrimSpace(d))
		if !slices.Contains([]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}, p.Days[i]) {
			wrong = errors.Join(wrong, fmt.Errorf("day %q: want mon, tue, wed, thu, fri, sat or sun", d))
		}
	}
	if wrong != nil {
		return fmt.Errorf("period %q: %w", p.Name, wrong)
	}
	return nil
}

func timeOfDay(s string) (time.Duration, error) {
	if s == "24:00" {
		return 24 * time.Hour, nil
	}
	t, err := time.Parse("15:04", s)
	if err != nil {
		return 0, fmt.Errorf("time of day %q: want 00:00 to 24:00", s)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}

// At returns the price at a time, with the intensity from the table.
func (t *Tariff) At(at time.Time, table Intensities) Price {
	p := Price{PerKWh: t.PerKWh, GramsPerKWh: t.Carbon.GramsPerKWh, PUE: max(t.PUE, 1)}
	if t.zone != nil {
		local := at.In(t.zone)
		for i := range t.Periods {
			if t.Periods[i].holds(local) {
				p.PerKWh = &t.Periods[i].PerKWh
				break
			}
		}
	}
	if found, ok := table.At(at); ok {
		p.GramsPerKWh, p.Estimated = &found.GramsPerKWh, found.Estimated
	}
	return p
}

// Zone returns the time zone of the site, which defines days and months of a report.
func (t *Tariff) Zone() *time.Location {
	if t.zone == nil {
		return time.UTC
	}
	return t.zone
}

// holds reports whether a local time lies in the period. A time after midnight belongs to the day on which the period
// began.
func (p *Period) holds(local time.Time) bool {
	of := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute + time.Duration(local.Second())*time.Second
	if p.from < p.to {
		return of >= p.from && of < p.to && p.on(local)
	}
	return of >= p.from && p.on(local) || of < p.to && p.on(local.AddDate(0, 0, -1))
}

func (p *Period) on(local time.Time) bool {
	return len(p.Days) == 0 || slices.Contains(p.Days, strings.ToLower(local.Weekday().String()[:3]))
}

// Cost returns the cost of energy spent evenly from one time to another, the facility's part included; known is false
// if a price is missing.
func Cost(price func(time.Time) Price, e unit.Energy, from, to time.Time) (cost float64, known bool) {
	// Periods change at quarters of an hour; a run of months is sampled.
	const quarter, most = 15 * time.Minute, 4 * 24 * 31
	parts := min(max(int(to.Sub(from)/quarter), 1), most)
	for i := range parts {
		p := price(from.Add(to.Sub(from) / time.Duration(parts) * time.Duration(i)))
		if p.PerKWh == nil {
			return 0, false
		}
		cost += *p.PerKWh * p.PUE * e.KilowattHours() / float64(parts)
	}
	return cost, true
}
