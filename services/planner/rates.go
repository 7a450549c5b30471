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
	"time"

	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// grid reads what energy will cost from a file, anew when that was changed: forecasts are.
type grid struct {
	path         string
	carbonWeight float64
	log          *slog.Logger

	modified time.Time
	known    plan.Rates
}

// rates are those from now on. A file that cannot be read leaves those that were read before.
func (g *grid) rates(now time.Time) plan.Rates {
	if g == nil || g.path == "" {
		return nil
	}
	if err := g.refresh(); err != nil {
		g.log.Warn("rates of energy not read, those before hold", "error", err)
	}
	first, exact := slices.BinarySearchFunc(g.known, now, func(r plan.Rate, at time.Time) int { return r.From.Compare(at) })
	if !exact && first > 0 {
		first--
	}
	return g.known[first:]
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
	known, err := parseRates(text, g.carbonWeight)
	if err != nil {
		return fmt.Errorf("read the rates in %s: %w", g.path, err)
	}
	g.known = known
	return nil
}

// parseRates reads a table with the columns datetime (RFC 3339), grams_per_kwh and price_per_kwh. Carbon and price are each divided by their mean, so that the
// weight of carbon, from 0 to 1, says the same whatever the currency. The last row holds as long as the one before it.
func parseRates(text []byte, carbonWeight float64) (plan.Rates, error) {
	const columns = 3
	reader := csv.NewReader(bytes.NewReader(text))
	reader.FieldsPerRecord = columns
	var rates plan.Rates
	var grams, prices []float64
	for row := 1; ; row++ {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if row == 1 && strings.EqualFold(strings.TrimSpace(fields[0]), "datetime") {
			continue
		}
		at, err := time.Parse(time.RFC3339, strings.TrimSpace(fields[0]))
		if err == nil && len(rates) > 0 && !at.After(rates[len(rates)-1].From) {
			err = errors.New("the times do not ascend")
		}
		g, gErr := amount(fields[1])
		p, pErr := amount(fields[2])
		if err := errors.Join(err, gErr, pErr); err != nil {
			return nil, fmt.Errorf("row %d: %w", row, err)
		}
		rates, grams, prices = append(rates, plan.Rate{From: at.UTC()}), append(grams, g), append(prices, p)
	}
	if len(rates) < 2 {
		return nil, fmt.Errorf("%d rows: want at least 2", len(rates))
	}
	carbonShare, priceShare := shares(grams), shares(prices)
	for i := range rates {
		rates[i].Cost = carbonWeight*carbonShare[i] + (1-carbonWeight)*priceShare[i]
	}
	last := rates[len(rates)-1].From
	return append(rates, plan.Rate{From: last.Add(last.Sub(rates[len(rates)-2].From))}), nil
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

// shares are numbers divided by their mean, all 0 where that is.
func shares(all []float64) []float64 {
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	parts := make([]float64, len(all))
	for i, x := range all {
		if sum > 0 {
			parts[i] = x * float64(len(all)) / sum
		}
	}
	return parts
}
