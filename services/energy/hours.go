package energy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/report"
)

// The parts of a key: month, day and hour are tokens of their own, so that those of a range can be asked for.
const (
	monthForm = "2006-01"
	dayForm   = monthForm + ".02"
	hourForm  = dayForm + ".15"
)

func hourKey(node train.NodeID, at time.Time) string {
	return string(node) + "." + at.UTC().Format(hourForm)
}

// hourPatterns match the keys of all hours in [from, to), and those of the rest of the first day and the last: whole months, and days before and after them.
func hourPatterns(from, to time.Time) []string {
	const day = 24 * time.Hour
	const most = 100 // of a range that begins long before there was a ledger
	var patterns []string
	for at := from.UTC().Truncate(day); at.Before(to); {
		next, pattern := at.AddDate(0, 0, 1), "*."+at.Format(dayForm)+".*"
		if month := at.AddDate(0, 1, 0); at.Day() == 1 && !month.After(to) {
			next, pattern = month, "*."+at.Format(monthForm)+".*.*"
		}
		if patterns = append(patterns, pattern); len(patterns) > most {
			return []string{">"}
		}
		at = next
	}
	return patterns
}

// bookHour books an interval in the book of the hour in which it began, by the same rules as in the node's book and before it: so the hour finds in that one what went before.
func (l *ledger) bookHour(ctx context.Context, m event.Measured, stream uint64) error {
	l.mu.Lock()
	before := l.pages[m.Node]
	l.mu.Unlock()
	_, err := l.hours.Modify(ctx, hourKey(m.Node, m.From), func(b *Book) (bool, error) {
		if b.Node == "" {
			*b = Book{Boot: before.Boot, Sequence: before.Sequence, To: before.To, StreamSequence: before.StreamSequence, Owed: before.Owed, Running: opened(before.Running)}
		}
		if b.has(m, stream) {
			return false, nil
		}
		b.add(m, stream, l.rules())
		b.Owners = l.owners(b.Running)
		return true, nil
	})
	return err
}

// owners are those of the jobs with accounts, as far as the register has told of them.
func (l *ledger) owners(accounts map[train.JobID]train.Account) map[train.JobID]report.Owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	owners := make(map[train.JobID]report.Owner, len(accounts))
	for id := range accounts {
		if job, known := l.jobs[id]; known {
			owners[id] = report.OwnerOf(job.Spec)
		}
	}
	return owners
}

// opened are empty accounts of the jobs that run already: a gap that reaches into the hour is one of theirs.
func opened(running map[train.JobID]train.Account) map[train.JobID]train.Account {
	accounts := make(map[train.JobID]train.Account, len(running))
	for job, a := range running {
		metering := make(map[string]train.Metering, len(a.Metering))
		for component := range a.Metering {
			metering[component] = train.Metering{}
		}
		accounts[job] = train.Account{Job: job, Metering: metering}
	}
	return accounts
}

// ReadHours gives what the ledger booked in the hours that begin in [from, to).
func ReadHours(ctx context.Context, b *bus.Bus, from, to time.Time) ([]report.Hour, error) {
	books, err := bus.OpenKV[Book](ctx, b, event.BucketHours)
	if err != nil {
		return nil, err
	}
	pages, err := books.List(ctx, hourPatterns(from, to)...)
	if err != nil {
		return nil, err
	}
	var hours []report.Hour
	for _, page := range pages {
		_, hour, _ := strings.Cut(page.Key, ".")
		start, err := time.Parse(hourForm, hour)
		if err != nil {
			return nil, fmt.Errorf("read hours: key %q: %w", page.Key, err)
		}
		if !start.Before(from) && start.Before(to) {
			hours = append(hours, page.Value.hour(start))
		}
	}
	return hours, nil
}

// hour is a book as reports see it.
func (b *Book) hour(start time.Time) report.Hour {
	h := report.Hour{
		Node: b.Node, Start: start, Methods: b.Methods, GapSeconds: b.GapSeconds, Resets: b.Resets, Owners: b.Owners,
		Idle: map[string]unit.Energy{}, Unattributed: map[string]unit.Energy{},
	}
	for component, t := range b.Totals {
		h.Idle[component], h.Unattributed[component] = t.Idle, t.Unattributed
	}
	for _, job := range slices.Sorted(maps.Keys(b.Running)) {
		if a := b.Running[job]; a.Seconds > 0 { // else it has not run in this hour
			h.Jobs = append(h.Jobs, a)
		}
	}
	return h
}
