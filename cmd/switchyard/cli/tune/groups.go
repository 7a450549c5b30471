package tune

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// groupLine is a group of recurring jobs, as its record shows it.
type groupLine struct {
	Group       string       `json:"group"`
	Tenant      string       `json:"tenant"`
	Recurrences int          `json:"recurrences"`
	Batches     []batchLine  `json:"batch_sizes"`
	Running     []jobChoice  `json:"running,omitempty"`
	Attempts    []recurrence `json:"attempts"`
}

// batchLine is the mean of the jobs that reached their target with a batch size.
type batchLine struct {
	BatchSize    int     `json:"batch_size"`
	Jobs         int     `json:"jobs"`
	EnergyJoules float64 `json:"energy_j"`
	Seconds      float64 `json:"seconds"`
	// LimitWatts is the best power limit found, or 0 if none is known yet.
	LimitWatts float64 `json:"limit_w,omitempty"`
}

// jobChoice is a running job with the batch size chosen for it.
type jobChoice struct {
	Job       train.JobID `json:"job"`
	BatchSize int         `json:"batch_size"`
}

// recurrence is a job that has ended. A job that missed its target belongs to the recurrence of the next job that
// reached it.
type recurrence struct {
	Recurrence int `json:"recurrence"`
	contract.GroupAttempt
}

func newGroupLine(tenant, group string, r contract.Group) groupLine {
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

// chosen returns the batch size and the power limit of the newest running job, else of the job that ended last.
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

func tuneGroupsCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "groups [GROUP]",
		Short: "Show groups of recurring jobs: the batch sizes and power limits tried, and their costs",
		Long: `Jobs with energy.group in their submission are recurrences of the same training. The planner chooses the batch size and the power limit of each from the costs of the
earlier ones. With a GROUP the command shows its recurrences one by one.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				lines, err := groupLines(ctx, b)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return printGroups(a, lines)
				}
				lines = slices.DeleteFunc(lines, func(l groupLine) bool { return l.Group != args[0] })
				if len(lines) == 0 {
					return exit.Errorf(exit.Failed, "`switchyard tune groups` lists them", "there is no group %s", args[0])
				}
				return printGroup(a, lines)
			})
		},
	}
}

func groupLines(ctx context.Context, b *bus.Bus) ([]groupLine, error) {
	records, err := console.MapBucket(ctx, b, contract.Groups)
	if err != nil {
		return nil, err
	}
	lines := []groupLine{}
	for key, record := range records {
		if tenant, group, ok := contract.SplitGroupKey(key); ok {
			lines = append(lines, newGroupLine(tenant, group, record))
		}
	}
	slices.SortFunc(lines, func(x, y groupLine) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Tenant, y.Tenant))
	})
	return lines, nil
}

func printGroups(a *console.Console, lines []groupLine) error {
	return a.Show(lines, "GROUP\tTENANT\tRECURRENCES\tRUNNING\tBATCH\tLIMIT", func(w io.Writer) {
		for _, l := range lines {
			batch, limit := l.chosen()
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", l.Group, render.Cell(l.Tenant, 24), l.Recurrences, len(l.Running), batch, wattsCell(limit))
		}
	})
}

// printGroup shows the groups with a name, one for each tenant.
func printGroup(a *console.Console, lines []groupLine) error {
	if a.Output == "json" {
		return a.PrintJSON(lines)
	}
	for _, l := range lines {
		fmt.Fprintf(a.Stdout, "group %s of %s: %s\n", l.Group, render.EscapeText(l.Tenant), render.Plural(l.Recurrences, "recurrence"))
		for _, j := range l.Running {
			fmt.Fprintf(a.Stdout, "  running    %s with batch size %d\n", j.Job, j.BatchSize)
		}
		fmt.Fprintln(a.Stdout)
		if err := a.Table("BATCH\tREACHED BY\tENERGY\tTIME\tLIMIT", func(w io.Writer) {
			for _, b := range l.Batches {
				energy, time := "-", "-"
				if b.Jobs > 0 {
					energy, time = unit.Joules(b.EnergyJoules), render.Duration(b.Seconds)
				}
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", b.BatchSize, render.Plural(b.Jobs, "job"), energy, time, wattsCell(b.LimitWatts))
			}
		}); err != nil {
			return err
		}
		fmt.Fprintln(a.Stdout)
		if err := a.Table("RECURRENCE\tBATCH\tENERGY\tTIME\tEPOCHS\tTARGET", func(w io.Writer) {
			for _, r := range l.Attempts {
				target := "missed"
				if r.Reached {
					target = "reached"
				}
				fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%d\t%s\n", r.Recurrence, r.BatchSize, unit.Joules(r.EnergyJoules), render.Duration(r.Seconds), r.Epochs, target)
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
