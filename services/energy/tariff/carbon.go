package tariff

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Intensity is the carbon of a kilowatt-hour from a time on.
type Intensity struct {
	From        time.Time
	GramsPerKWh float64
	Estimated   bool
}

// Intensities are ordered by time.
type Intensities []Intensity

// staleAfter is how long an intensity is valid without a later one: sources publish one each hour.
const staleAfter = 2 * time.Hour

// At returns the intensity at a time.
func (all Intensities) At(at time.Time) (Intensity, bool) {
	i, exact := slices.BinarySearchFunc(all, at, func(x Intensity, at time.Time) int { return x.From.Compare(at) })
	if !exact {
		i--
	}
	if i < 0 || at.Sub(all[i].From) >= staleAfter {
		return Intensity{}, false
	}
	return all[i], true
}

// Merge adds newer intensities; of two for the same time the newer answer counts. It drops those from before since.
func (all Intensities) Merge(newer Intensities, since time.Time) Intensities {
	merged := slices.Concat(newer, all)
	slices.SortStableFunc(merged, func(a, b Intensity) int { return a.From.Compare(b.From) })
	merged = slices.CompactFunc(merged, func(a, b Intensity) bool { return a.From.Equal(b.From) })
	return slices.DeleteFunc(merged, func(x Intensity) bool { return x.From.Before(since) })
}

// ParseCSV parses a table with the columns datetime (RFC 3339), grams_per_kwh and, optionally, estimated (true or
// false).
func ParseCSV(text []byte) (Intensities, error) {
	reader := csv.NewReader(bytes.NewReader(text))
	reader.FieldsPerRecord = -1 // estimated may be left out
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read carbon intensities: %w", err)
	}
	var all Intensities
	for i, row := range rows {
		if i == 0 && strings.EqualFold(strings.TrimSpace(row[0]), "datetime") {
			continue
		}
		one, err := parseRow(row)
		if err != nil {
			return nil, fmt.Errorf("read carbon intensities: row %d: %w", i+1, err)
		}
		all = append(all, one)
	}
	return all.Merge(nil, time.Time{}), nil
}

func parseRow(row []string) (Intensity, error) {
	if len(row) < 2 {
		return Intensity{}, fmt.Errorf("%d columns: want datetime and grams_per_kwh", len(row))
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(row[0]))
	if err != nil {
		return Intensity{}, err
	}
	grams, err := strconv.ParseFloat(strings.TrimSpace(row[1]), 64)
	if err != nil || !(grams >= 0) {
		return Intensity{}, fmt.Errorf("grams_per_kwh %q: want a number", row[1])
	}
	return Intensity{From: at, GramsPerKWh: grams, Estimated: len(row) > 2 && strings.EqualFold(strings.TrimSpace(row[2]), "true")}, nil
}

// answer is the report of Electricity Maps for one hour.
type answer struct {
	CarbonIntensity *float64  `json:"carbonIntensity"`
	Datetime        time.Time `json:"datetime"`
	IsEstimated     bool      `json:"isEstimated"`
}

// ParseElectricityMaps parses an answer in the format of Electricity Maps: latest (one hour), history, past-range
// (data) or forecast. It leaves out hours without a value.
func ParseElectricityMaps(text []byte) (Intensities, error) {
	var body struct {
		answer
		History  []answer `json:"history"`
		Data     []answer `json:"data"`
		Forecast []answer `json:"forecast"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, fmt.Errorf("read carbon intensities: %w", err)
	}
	var all Intensities
	for _, a := range slices.Concat([]answer{body.answer}, body.History, body.Data, body.Forecast) {
		if a.CarbonIntensity != nil && *a.CarbonIntensity >= 0 && !a.Datetime.IsZero() {
			all = append(all, Intensity{From: a.Datetime, GramsPerKWh: *a.CarbonIntensity, Estimated: a.IsEstimated})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read carbon intensities: none in %.200q", text)
	}
	return all.Merge(nil, time.Time{}), nil
}
