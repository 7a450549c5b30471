package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Hours converts the ledger's books, by the keys of their bucket, to hours. It leaves out those that do not begin in
// [from, to), and keeps the order of the keys.
func Hours(books map[string]contract.Book, from, to time.Time) ([]Hour, error) {
	var hours []Hour
	for _, key := range slices.Sorted(maps.Keys(books)) {
		_, hour, _ := strings.Cut(key, ".")
		start, err := time.Parse(contract.HourForm, hour)
		if err != nil {
			return nil, fmt.Errorf("read hours: key %q: %w", key, err)
		}
		if !start.Before(from) && start.Before(to) {
			hours = append(hours, fromBook(books[key], start))
		}
	}
	return hours, nil
}

// fromBook converts one book. Jobs that did not run in the hour are left out.
func fromBook(b contract.Book, start time.Time) Hour {
	h := Hour{
		Node: b.Node, Start: start, Methods: b.Methods, GapSeconds: b.GapSeconds, Resets: b.Resets, Owners: b.Owners,
		Idle: map[string]unit.Energy{}, Unattributed: map[string]unit.Energy{},
	}
	for component, t := range b.Totals {
		h.Idle[component], h.Unattributed[component] = t.Idle, t.Unattributed
	}
	for _, job := range slices.Sorted(maps.Keys(b.Running)) {
		if a := b.Running[job]; a.Seconds > 0 {
			h.Jobs = append(h.Jobs, a)
		}
	}
	return h
}
