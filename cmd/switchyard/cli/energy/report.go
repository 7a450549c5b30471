// Package energy holds the command that reports who used how much energy.
package energy

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
	"github.com/switchyard-dl/switchyard/services/energy/report"
)

// reportOptions say what is asked.
type reportOptions struct {
	by       string
	from     string
	to       string
	since    string
	defaults string
	grid     grid.Config
}

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{Use: "report", Short: "Report the energy used"}
	cmd.PersistentPreRunE = a.Accept("table", "json", "csv", "html")
	cmd.AddCommand(reportEnergyCommand(a))
	return cmd
}

func reportEnergyCommand(a *console.Console) *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "energy",
		Short: "Report energy, its cost and its carbon by job, user, tenant, node or month",
		Long: `Reports from the ledger, which books every hour of every node: energy by component, active, idle and unattributed, what it cost and what carbon it
stands for by the tariff, how much of it was measured and how. Rows add up to the total. A row named _idle or _unattributed is what no job used.

--tariff names a YAML file: currency, timezone, price_per_kwh, periods (name, days, from, to, price_per_kwh), pue, and carbon with one of grams_per_kwh, file (CSV: datetime,
grams_per_kwh,estimated) and url (an answer as Electricity Maps gives it).

Finished jobs of a recurring group are held against those of the group that ran with the batch size that was submitted. --defaults names a CSV file (name,kwh,hours): what jobs
of a name, in a group or not, take with their default configuration; it goes before the group.`,
		Example: `  switchyard report energy --since 7d --by user --tariff site.yaml
  switchyard report energy --by month --from 2026-01-01 --to 2026-07-01 -o csv
  switchyard report energy --since 30d -o html > energy.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return reportEnergy(ctx, a, y, o, time.Now()) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.by, "by", string(report.ByJob), "job, user, tenant, node or month")
	fs.StringVar(&o.from, "from", "", "first day or hour, as 2026-01-31 or 2026-01-31T18:00:00Z (default: 30 days before the end)")
	fs.StringVar(&o.to, "to", "", "end of the report, exclusive, in the same form (default: now)")
	fs.StringVar(&o.since, "since", "", "length of the report instead of --from, as 12h or 7d")
	fs.StringVar(&o.defaults, "defaults", "", "CSV file with the energy and time of jobs in their default configuration")
	fs.StringVar(&o.grid.File, "tariff", "", "YAML file with prices by time of use, carbon intensity and PUE (default: no prices)")
	fs.StringVar(&o.grid.Token, "carbon-token", "", "token for the tariff's carbon url, sent as auth-token")
	return cmd
}

func reportEnergy(ctx context.Context, a *console.Console, y console.Yard, o reportOptions, now time.Time) error {
	prices, err := grid.Load(o.grid)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	q, err := o.question(prices.Tariff.Zone(), now)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	if err := prices.Refresh(ctx); err != nil {
		fmt.Fprintf(a.Stderr, "no carbon intensities: %v\n", err)
	}
	q.Price = prices.Price
	stated, err := readDefaults(o.defaults)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	ledger, err := y.Ledger(ctx, q.From, q.To)
	if err != nil {
		return err
	}
	q.Default = report.Defaults(stated, ledger.Groups)
	q.Jobs, q.Accounts = map[train.JobID]train.Job{}, map[train.JobID]train.Account{}
	for _, j := range ledger.Jobs {
		q.Jobs[j.ID] = j
	}
	for _, account := range ledger.Accounts {
		q.Accounts[account.Job] = account
	}
	hours, err := report.Hours(ledger.Books, q.From, q.To)
	if err != nil {
		return err
	}
	return writeReport(a, report.Make(q, hours), &prices.Tariff)
}

// question makes sense of the flags. The ledger keeps hours: a part of an hour counts as the whole.
func (o reportOptions) question(zone *time.Location, now time.Time) (report.Question, error) {
	q := report.Question{By: report.By(o.by), Zone: zone, To: now}
	if !slices.Contains(report.Kinds(), q.By) {
		return q, fmt.Errorf("--by %q: want job, user, tenant, node or month", o.by)
	}
	var err error
	if o.to != "" {
		if q.To, err = parseMoment(o.to, zone); err != nil {
			return q, fmt.Errorf("--to: %w", err)
		}
	}
	back := 30 * 24 * time.Hour
	if o.since != "" {
		if o.from != "" {
			return q, fmt.Errorf("--since %q and --from %q: want one of them", o.since, o.from)
		}
		if back, err = parseSpan(o.since); err != nil {
			return q, fmt.Errorf("--since: %w", err)
		}
	}
	q.From = q.To.Add(-back)
	if o.from != "" {
		if q.From, err = parseMoment(o.from, zone); err != nil {
			return q, fmt.Errorf("--from: %w", err)
		}
	}
	q.From = q.From.Truncate(time.Hour)
	if !q.From.Before(q.To) {
		return q, fmt.Errorf("from %s to %s: nothing lies in between", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339))
	}
	return q, nil
}

func parseMoment(s string, zone *time.Location) (time.Time, error) {
	if t, err := time.ParseInLocation(time.DateOnly, s, zone); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q: want 2026-01-31 or 2026-01-31T18:00:00Z", s)
	}
	return t, nil
}

// parseSpan reads a duration, also in days.
func parseSpan(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil && n > 0 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q: want a time such as 12h or 7d", s)
	}
	return d, nil
}

// readDefaults reads what jobs take with their default configuration, by name.
func readDefaults(path string) (map[string]report.Default, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--defaults: %w", err)
	}
	defer func() { _ = file.Close() }()
	columns := []string{"name", "kwh", "hours"}
	lines := csv.NewReader(file)
	lines.FieldsPerRecord, lines.TrimLeadingSpace = len(columns), true
	all := map[string]report.Default{}
	for first := true; ; first = false {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("--defaults: read %s: %w; want name,kwh,hours", path, err)
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(strings.TrimPrefix(fields[i], "\ufeff")) // spreadsheets mark the order of bytes
		}
		if first && slices.EqualFunc(fields, columns, strings.EqualFold) {
			continue
		}
		kwh, err := amount(fields[1], access.MostEnergyKWh)
		hours, hoursErr := amount(fields[2], mostHours)
		if err = cmp.Or(err, hoursErr); fields[0] == "" {
			err = errors.New("a name is missing")
		}
		if err != nil {
			line, _ := lines.FieldPos(0)
			return nil, fmt.Errorf("--defaults: line %d of %s: %w; want name,kwh,hours", line, path, err)
		}
		all[fields[0]] = report.Default{Energy: unit.Energy(kwh * float64(unit.KilowattHour)), Seconds: hours * time.Hour.Seconds()}
	}
}

// mostHours is longer than any job runs.
const mostHours = 1e6

// amount reads a number above 0.
func amount(s string, most float64) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x > 0 && x <= most) {
		return 0, fmt.Errorf("%.40q: want a number above 0, at most %g", s, most)
	}
	return x, nil
}
