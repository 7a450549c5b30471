package tune

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

func tuneGroupsCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "groups [GROUP]",
		Short: "Show groups of recurring jobs: the batch sizes and power limits tried, and their costs",
		Long: `Jobs with energy.group in their submission are recurrences of the same training. The planner chooses the batch size and the power limit of each from the costs of the
earlier ones. With a GROUP the command shows its recurrences one by one.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				groups, err := y.Groups(ctx)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return printGroups(a, groups)
				}
				groups = slices.DeleteFunc(groups, func(g view.Group) bool { return g.Group != args[0] })
				if len(groups) == 0 {
					return exit.Errorf(exit.Failed, "`switchyard tune groups` lists them", "there is no group %s", args[0])
				}
				return printGroup(a, groups)
			})
		},
	}
}

func printGroups(a *console.Console, groups []view.Group) error {
	return a.Show(groups, "GROUP\tTENANT\tRECURRENCES\tRUNNING\tBATCH\tLIMIT", func(w io.Writer) {
		for _, g := range groups {
			batch, limit := g.Chosen()
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", g.Group, render.Cell(g.Tenant, 24), g.Recurrences, len(g.Running), batch, wattsCell(limit))
		}
	})
}

// printGroup shows the groups with a name, one for each tenant.
func printGroup(a *console.Console, groups []view.Group) error {
	if a.Output == "json" {
		return a.PrintJSON(groups)
	}
	for _, g := range groups {
		fmt.Fprintf(a.Stdout, "group %s of %s: %s\n", g.Group, render.EscapeText(g.Tenant), render.Plural(g.Recurrences, "recurrence"))
		for _, j := range g.Running {
			fmt.Fprintf(a.Stdout, "  running    %s with batch size %d\n", j.Job, j.BatchSize)
		}
		fmt.Fprintln(a.Stdout)
		if err := a.Table("BATCH\tREACHED BY\tENERGY\tTIME\tLIMIT", func(w io.Writer) {
			for _, b := range g.Batches {
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
			for _, r := range g.Attempts {
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
