package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy"
	"github.com/switchyard-dl/switchyard/services/energy/report"
	"github.com/switchyard-dl/switchyard/services/planner"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// reportOptions say what is asked.
type reportOptions struct {
	by       string
	from     string
	to       string
	since    string
	defaults string
	grid     energy.GridConfig
}

func (a *app) reportCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "report", Short: "Report what was spent", Args: cobra.NoArgs}
	cmd.PersistentPreRunE = a.wantsPages
	cmd.AddCommand(a.reportEnergyCommand())
	return cmd
}

// wantsPages is for commands that also write tables for other programs, and pages.
func (a *app) wantsPages(*cobra.Command, []string) error {
	if !slices.Contains([]string{"table", "json", "csv", "html"}, a.output) {
		return failure(ExitUsage, "", "-o %q: want table, json, csv or html", a.output)
	}
	return nil
}

func (a *app) reportEnergyCommand() *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "energy",
		Short: "Report energy, its cost and its carbon by job, user, tenant, node or month",
		Long: `Reports from the ledger, which books every hour of every node: energy by component, active, idle and not attributed to anybody, what it cost and what carbon it
stands for by the tariff, how much of it was measured and how. Rows add up to what was measured. A row named _idle or _unattributed is what no job used.

--tariff names a YAML file: currency, timezone, price_per_kwh, periods (name, days, from, to, price_per_kwh), pue, and carbon with one of grams_per_kwh, file (CSV: datetime,
grams_per_kwh,estimated) and url (an answer as Electricity Maps gives it).

Finished jobs of a recurring group are held against those of the group that ran with the batch size that was submitted. --defaults names a CSV file (name,kwh,hours): what jobs
of a name, in a group or not, take with their default configuration; it goes before the group.`,
		Example: `  switchyard report energy --since 7d --by user --tariff site.yaml
  switchyard report energy --by month --from 2026-01-01 --to 2026-07-01 -o csv
  switchyard report energy --since 30d -o html > energy.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error { return a.reportEnergy(ctx, b, o, time.Now()) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.by, "by", string(report.ByJob), "job, user, tenant, node or month")
	fs.StringVar(&o.from, "from", "", "first day or hour, as 2026-01-31 or 2026-01-31T18:00:00Z (default: 30 days before the end)")
	fs.StringVar(&o.to, "to", "", "day or hour before which it ends (default: now)")
	fs.StringVar(&o.since, "since", "", "instead of --from: how long before the end, as 12h or 7d")
	fs.StringVar(&o.defaults, "defaults", "", "CSV file with what jobs take with their default configuration")
	o.grid.Flags(fs)
	return cmd
}

func (a *app) reportEnergy(ctx context.Context, b *bus.Bus, o reportOptions, now time.Time) error {
	grid, err := energy.LoadGrid(o.grid)
	if err != nil {
		return failure(ExitUsage, "", "%v", err)
	}
	q, err := o.question(grid.Tariff.Zone(), now)
	if err != nil {
		return failure(ExitUsage, "", "%v", err)
	}
	if err := grid.Refresh(ctx); err != nil {
		_, _ = fmt.Fprintf(a.stderr, "no carbon intensities: %v\n", err)
	}
	q.Price = grid.Price
	stated, err := readDefaults(o.defaults)
	if err != nil {
		return failure(ExitUsage, "", "%v", err)
	}
	if q.Default, err = defaultsOf(ctx, b, stated); err != nil {
		return err
	}
	hours, err := spent(ctx, b, &q)
	if err != nil {
		return err
	}
	return a.writeReport(report.Make(q, hours), &grid.Tariff)
}

// spent reads what the question needs from the bus.
func spent(ctx context.Context, b *bus.Bus, q *report.Question) ([]report.Hour, error) {
	jobs, err := listBucket[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		return nil, err
	}
	q.Jobs = make(map[train.JobID]train.Job, len(jobs))
	for _, j := range jobs {
		q.Jobs[j.ID] = j
	}
	if q.Accounts, err = jobAccounts(ctx, b); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return energy.ReadHours(ctx, b, q.From, q.To)
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

// defaultsOf is what jobs take with their default configuration: as is stated of their names, else as jobs of the same group took with the submitted batch size.
func defaultsOf(ctx context.Context, b *bus.Bus, stated map[string]report.Default) (func(train.Job) (report.Default, bool), error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	groups, err := bus.OpenKV[recur.Record](ctx, b, event.BucketGroups)
	if err != nil {
		return nil, err
	}
	entries, err := groups.List(ctx)
	if err != nil {
		return nil, err
	}
	records := make(map[string]recur.Record, len(entries))
	for _, e := range entries {
		records[e.Key] = e.Value
	}
	return func(j train.Job) (report.Default, bool) {
		if d, known := stated[j.Spec.Name]; known || !j.Spec.Recurs() {
			return d, known
		}
		record := records[planner.GroupKey(j.Spec)]
		joules, seconds, known := record.Usual(j.SubmittedBatch)
		return report.Default{Energy: unit.Energy(joules * float64(unit.Joule)), Seconds: seconds}, known
	}, nil
}

// readDefaults reads what jobs take with their default configuration, by name.
func readDefaults(path string) (map[string]report.Default, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--defaults: %w", err)
	}
	all := map[string]report.Default{}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, rest, _ := strings.Cut(line, ",")
		var kwh, hours float64
		if n, err := fmt.Sscanf(rest, "%g,%g", &kwh, &hours); (err != nil || n != 2) && i > 0 {
			return nil, fmt.Errorf("--defaults: line %d of %s: want name,kwh,hours", i+1, path)
		} else if err == nil {
			all[strings.TrimSpace(name)] = report.Default{Energy: unit.Energy(kwh * float64(unit.KilowattHour)), Seconds: hours * time.Hour.Seconds()}
		}
	}
	return all, nil
}
