package energy

import (
	"context"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/report"
)

// bill sets the cost and carbon of an account by the hours of its nodes, as a report by job does. What the tariff does
// not know for all of the energy stays unknown.
func (l *ledger) bill(ctx context.Context, job train.Job, account *train.Account) error {
	l.mu.Lock()
	nodes := l.places[account.Job]
	l.mu.Unlock()
	if l.price == nil || len(nodes) == 0 {
		return nil
	}
	end := endOf(job).Add(time.Hour)
	var keys []string
	for _, pattern := range contract.HourPatterns(job.SubmittedAt, end) {
		for _, node := range nodes {
			keys = append(keys, string(node)+strings.TrimPrefix(pattern, "*"))
		}
	}
	entries, err := l.hourly.List(ctx, keys...)
	if err != nil {
		return err
	}
	books := map[string]contract.Book{}
	for _, e := range entries {
		if mine, ran := e.Value.Running[account.Job]; ran {
			// The hours of a long run need only what the job itself used.
			e.Value.Running, e.Value.Totals = map[train.JobID]train.Account{account.Job: mine}, nil
			books[e.Key] = e.Value
		}
	}
	hours, err := report.Hours(books, time.Time{}, end)
	if err != nil {
		return err
	}
	sum := report.Make(report.Question{By: report.ByJob, To: end, Zone: time.UTC, Price: l.price}, hours).Total
	const whole = 0.99
	if float64(sum.Energy) < whole*float64(account.Energy) {
		return nil // hours are missing
	}
	if sum.PricedRatio == 1 {
		account.Cost, account.Currency = sum.Cost, strings.TrimSpace(l.currency)
	}
	if sum.IntensityRatio == 1 {
		account.CO2eGrams = sum.CO2eGrams
	}
	return nil
}
