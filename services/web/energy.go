package web

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// energyDays is the largest number of days that one answer adds up: each day of a node is 24 records.
const energyDays = 92

// energy answers with what was spent in the last days, from the ledger's books of hours. The index does not hold them:
// they are many, and asked for rarely.
func (s server) energy(route api.Route, r *http.Request) (answer, error) {
	values := r.URL.Query()
	if _, err := route.Decode(values); err != nil {
		return answer{}, err
	}
	zone, err := zoneOf(values.Get("zone"))
	if err != nil {
		return answer{}, err
	}
	days := 30
	if given := values.Get("days"); given != "" {
		if days, err = strconv.Atoi(given); err != nil || days < 1 || days > energyDays {
			return answer{}, fmt.Errorf("days: want a number from 1 to %d, found %q", energyDays, given)
		}
	}
	now := s.now().In(zone)
	from := time.Date(now.Year(), now.Month(), now.Day()-days+1, 0, 0, 0, 0, zone)
	bucket, err := bus.OpenKV(r.Context(), s.bus, contract.Hours)
	if err != nil {
		return answer{}, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	entries, err := bucket.List(r.Context(), contract.HourPatterns(from, now)...)
	if err != nil {
		return answer{}, problemError{problem(http.StatusServiceUnavailable, err.Error(), "")}
	}
	books := make(map[string]contract.Book, len(entries))
	for _, e := range entries {
		books[e.Key] = e.Value
	}
	var spent view.Energy
	s.known.read(func(x *index.Index) { spent = view.SpentIn(x, books, from, now) })
	return answer{body: spent}, nil
}

// zoneOf returns the zone that a person's times are in.
func zoneOf(name string) (*time.Location, error) {
	if name == "" {
		return time.Local, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone: %w", err)
	}
	return zone, nil
}
