package web

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// energy answers with what was spent in the last days, from the ledger's books of hours. The index does not hold them:
// they are many, and asked for rarely.
func (s server) energy(route api.Route, r *http.Request) (answer, error) {
	values := r.URL.Query()
	zone, err := zoneOf(values.Get("zone"))
	if err != nil {
		return answer{}, err
	}
	days := 30
	if given := values.Get("days"); given != "" {
		if days, err = strconv.Atoi(given); err != nil || days < 1 || days > view.LedgerDays {
			return answer{}, fmt.Errorf("days: want a number from 1 to %d, found %q", view.LedgerDays, given)
		}
	}
	now := s.now().In(zone)
	from := time.Date(now.Year(), now.Month(), now.Day()-days+1, 0, 0, 0, 0, zone)
	books, err := recordsByKey(r.Context(), s, contract.Hours, contract.HourPatterns(from, now)...)
	if err != nil {
		return answer{}, err
	}
	var spent view.Energy
	s.known.read(func(x *index.Index) { spent = view.SpentIn(x, books, from, now) })
	return answer{body: spent}, nil
}

// ledger answers with the books of the hours between two times, and what is known about the jobs in them.
func (s server) ledger(route api.Route, r *http.Request) (answer, error) {
	values := r.URL.Query()
	from, err := time.Parse(time.RFC3339, values.Get("from"))
	if err != nil {
		return answer{}, fmt.Errorf("from: want a time such as 2026-01-31T23:00:00Z, found %q", values.Get("from"))
	}
	to, err := time.Parse(time.RFC3339, values.Get("to"))
	if err != nil || !to.After(from) || to.Sub(from) > view.LedgerDays*24*time.Hour {
		return answer{}, fmt.Errorf("to: want a time after from, at most %d days later, found %q", view.LedgerDays, values.Get("to"))
	}
	books, err := recordsByKey(r.Context(), s, contract.Hours, contract.HourPatterns(from, to)...)
	if err != nil {
		return answer{}, err
	}
	groups, err := recordsByKey(r.Context(), s, contract.Groups)
	if err != nil {
		return answer{}, err
	}
	var ledger view.Ledger
	s.known.read(func(x *index.Index) { ledger = view.NewLedger(x, books, groups) })
	return answer{body: ledger}, nil
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
