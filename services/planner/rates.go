package planner

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// grid knows what energy will cost: from a file, read again when it changes, since forecasts do, or else as the
// energy service publishes it.
type grid struct {
	path         string
	carbonWeight float64
	log          *slog.Logger

	modified time.Time

	mu    sync.Mutex
	known plan.Rates
}

// rates returns those from now on. If the file cannot be read, the rates read before stay.
func (g *grid) rates(now time.Time) plan.Rates {
	if g == nil {
		return nil
	}
	if g.path != "" {
		if err := g.refresh(); err != nil {
			g.log.Warn("rates of energy not read, those before hold", "error", err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	first, exact := slices.BinarySearchFunc(g.known, now, func(r plan.Rate, at time.Time) int { return r.From.Compare(at) })
	if !exact && first > 0 {
		first--
	}
	return g.known[first:]
}

func (g *grid) know(told train.EnergyRates) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = weigh(told, g.carbonWeight)
}

// see enters what the energy service publishes. A file takes precedence.
func (g *grid) see(e bus.Entry[train.EnergyRates], deleted bool) {
	if g.path == "" && !deleted {
		g.know(e.Value)
	}
}

func (g *grid) refresh() error {
	info, err := os.Stat(g.path)
	if err != nil {
		return fmt.Errorf("look at the rates: %w", err)
	}
	if info.ModTime().Equal(g.modified) {
		return nil
	}
	g.modified = info.ModTime() // a file with a mistake is complained of once
	text, err := os.ReadFile(g.path)
	if err != nil {
		return fmt.Errorf("read the rates: %w", err)
	}
	told, err := parseRates(text)
	if err != nil {
		return fmt.Errorf("read the rates in %s: %w", g.path, err)
	}
	g.know(told)
	return nil
}

// parseRates reads a table with the columns datetime (RFC 3339), grams_per_kwh and price_per_kwh. The last row
// holds for as long as the one before it.
func parseRates(text []byte) (train.EnergyRates, error) {
	const columns = 3
	reader := csv.NewReader(bytes.NewReader(text))
	reader.FieldsPerRecord = columns
	var rates []train.EnergyRate
	for row := 1; ; row++ {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return train.EnergyRates{}, err
		}
		if row == 1 && strings.EqualFold(strings.TrimSpace(fields[0]), "datetime") {
			continue
		}
		at, err := time.Parse(time.RFC3339, strings.TrimSpace(fields[0]))
		if err == nil && len(rates) > 0 && !at.After(rates[len(rates)-1].From) {
			err = errors.New("the times do not ascend")
		}
		grams, gramsErr := amount(fields[1])
		price, priceErr := amount(fields[2])
		if err := errors.Join(err, gramsErr, priceErr); err != nil {
			return train.EnergyRates{}, fmt.Errorf("row %d: %w", row, err)
		}
		rates = append(rates, train.EnergyRate{From: at.UTC(), GramsPerKWh: grams, PricePerKWh: price})
	}
	if len(rates) < 2 {
		return train.EnergyRates{}, fmt.Errorf("%d rows: want at least 2", len(rates))
	}
	last := rates[len(rates)-1].From
	return train.EnergyRates{Rates: rates, Until: last.Add(last.Sub(rates[len(rates)-2].From))}, nil
}

// weigh makes one cost of carbon and price. Each is divided by its mean over time, so that the weight of carbon,
// from 0 to 1, means the same in any currency.
func weigh(told train.EnergyRates, carbonWeight float64) plan.Rates {
	var grams, price, hours float64
	for i, r := range told.Rates {
		until := told.Until
		if i+1 < len(told.Rates) {
			until = told.Rates[i+1].From
		}
		h := until.Sub(r.From).Hours()
		grams, price, hours = grams+h*r.GramsPerKWh, price+h*r.PricePerKWh, hours+h
	}
	share := func(x, sum float64) float64 {
		if sum > 0 {
			return x * hours / sum
		}
		return 0
	}
	var rates plan.Rates
	for _, r := range told.Rates {
		rates = append(rates, plan.Rate{
			From: r.From, Cost: carbonWeight*share(r.GramsPerKWh, grams) + (1-carbonWeight)*share(r.PricePerKWh, price),
			PricePerKWh: r.PricePerKWh, GramsPerKWh: r.GramsPerKWh,
		})
	}
	if len(rates) > 0 {
		rates = append(rates, plan.Rate{From: told.Until})
	}
	return rates
}

// amount reads a number that is not negative; an empty column is 0.
func amount(s string) (float64, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, nil
	}
	x, err := strconv.ParseFloat(s, 64)
	const most = 1e9
	if err != nil || !(x >= 0 && x <= most) {
		return 0, fmt.Errorf("%.40q: want a number from 0 to %g", s, most)
	}
	return x, nil
}
