package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// groupLine is a group of jobs that recur, and what is known of it.
type groupLine struct {
	Group       string       `json:"group"`
	Tenant      string       `json:"tenant"`
	Recurrences int          `json:"recurrences"`
	Batches     []batchLine  `json:"batch_sizes"`
	Running     []jobChoice  `json:"running,omitempty"`
	Attempts    []recurrence `json:"attempts"`
}

// batchLine is what the jobs that reached their target took with a batch size, on average.
type batchLine struct {
	BatchSize    int     `json:"batch_size"`
	Jobs         int     `json:"jobs"`
	EnergyJoules float64 `json:"energy_j"`
	Seconds      float64 `json:"seconds"`
	// LimitWatts is the power limit that was found best, 0 before one was.
	LimitWatts float64 `json:"limit_w,omitempty"`
}

// jobChoice is a job under way with the batch size that was chosen for it.
type jobChoice struct {
	Job       train.JobID `json:"job"`
	BatchSize int         `json:"batch_size"`
}

// recurrence is a job that has ended: those that missed their target belong to the recurrence of the next one that reached it.
type recurrence struct {
	Recurrence int `json:"recurrence"`
	recur.Attempt
}

func newGroupLine(tenant, group string, r recur.Record) groupLine {
	l := groupLine{Group: group, Tenant: tenant, Recurrences: r.Recurrences(), Batches: []batchLine{}, Attempts: []recurrence{}}
	sizes := map[int]bool{}
	number := 1
	for _, a := range r.Attempts {
		sizes[a.BatchSize] = true
		l.Attempts = append(l.Attempts, recurrence{number, a})
		if a.Reached {
			number++
		}
	}
	for _, job := range r.UnderWay() {
		sizes[r.Running[job].BatchSize] = true
		l.Running = append(l.Running, jobChoice{job, r.Running[job].BatchSize})
	}
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		b := batchLine{BatchSize: size, LimitWatts: r.LimitsWatts[size]}
		if taken := r.Taken[size]; taken.Jobs > 0 {
			b.Jobs, b.EnergyJoules, b.Seconds = taken.Jobs, taken.EnergyJoules/float64(taken.Jobs), taken.Seconds/float64(taken.Jobs)
		}
		l.Batches = append(l.Batches, b)
	}
	return l
}

// chosen is the batch size of the newest job under way, or else of the one that ended last, and its power limit.
func (l groupLine) chosen() (batch int, limit float64) {
	switch {
	case len(l.Running) > 0:
		batch = l.Running[len(l.Running)-1].BatchSize
	case len(l.Attempts) > 0:
		batch = l.Attempts[len(l.Attempts)-1].BatchSize
	}
	for _, b := range l.Batches {
		if b.BatchSize == batch {
			limit = b.LimitWatts
		}
	}
	return batch, limit
}

func (a *app) tuneGroupsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "groups [GROUP]",
		Short: "Show the groups of jobs that recur: which batch sizes and power limits were tried, and what they cost",
		Long: `Jobs with energy.group in their submission are the same training, come again: each gets the batch size, and while it runs the power limit, that the ones before it
speak for. With a GROUP its recurrences are shown one by one.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				lines, err := groupLines(ctx, b)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return a.printGroups(lines)
				}
				lines = slices.DeleteFunc(lines, func(l groupLine) bool { return l.Group != args[0] })
				if len(lines) == 0 {
					return failure(ExitError, "`switchyard tune groups` lists them", "there is no group %s", args[0])
				}
				return a.printGroup(lines)
			})
		},
	}
}

func groupLines(ctx context.Context, b *bus.Bus) ([]groupLine, error) {
	records, err := openBucket[recur.Record](ctx, b, event.BucketGroups)
	if err != nil {
		return nil, err
	}
	entries, err := records.List(ctx)
	if err != nil {
		return nil, err
	}
	lines := []groupLine{}
	for _, e := range entries {
		if tenant, group, ok := planner.SplitGroupKey(e.Key); ok {
			lines = append(lines, newGroupLine(tenant, group, e.Value))
		}
	}
	slices.SortFunc(lines, func(x, y groupLine) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Tenant, y.Tenant))
	})
	return lines, nil
}

func (a *app) printGroups(lines []groupLine) error {
	if a.output == "json" {
		return a.printJSON(lines)
	}
	return a.table("GROUP\tTENANT\tRECURRENCES\tRUNNING\tBATCH\tLIMIT", func(w io.Writer) {
		for _, l := range lines {
			batch, limit := l.chosen()
			_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", l.Group, cell(l.Tenant, 24), l.Recurrences, len(l.Running), batch, wattsCell(limit))
		}
	})
}

// printGroup shows the groups of a name, of each tenant one.
func (a *app) printGroup(lines []groupLine) error {
	if a.output == "json" {
		return a.printJSON(lines)
	}
	for _, l := range lines {
		_, _ = fmt.Fprintf(a.stdout, "group %s of %s: %s\n", l.Group, escapeText(l.Tenant), plural(l.Recurrences, "recurrence"))
		for _, j := range l.Running {
			_, _ = fmt.Fprintf(a.stdout, "  running    %s with batch size %d\n", j.Job, j.BatchSize)
		}
		_, _ = fmt.Fprintln(a.stdout)
		if err := a.table("BATCH\tREACHED BY\tENERGY\tTIME\tLIMIT", func(w io.Writer) {
			for _, b := range l.Batches {
				energy, time := "-", "-"
				if b.Jobs > 0 {
					energy, time = fmt.Sprintf("%.4g J", b.EnergyJoules), duration(b.Seconds)
				}
				_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", b.BatchSize, plural(b.Jobs, "job"), energy, time, wattsCell(b.LimitWatts))
			}
		}); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(a.stdout)
		if err := a.table("RECURRENCE\tBATCH\tENERGY\tTIME\tEPOCHS\tTARGET", func(w io.Writer) {
			for _, r := range l.Attempts {
				target := "missed"
				if r.Reached {
					target = "reached"
				}
				_, _ = fmt.Fprintf(w, "%d\t%d\t%.4g J\t%s\t%d\t%s\n", r.Recurrence, r.BatchSize, r.EnergyJoules, duration(r.Seconds), r.Epochs, target)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

func wattsCell(watts float64) string {
	if watts == 0 {
		return "-"
	}
	return fmt.Sprintf("%g W", watts)
}
