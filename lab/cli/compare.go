package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
	"github.com/switchyard-dl/switchyard/services/planner/simrun"
)

func (a *app) compareCommand() *cobra.Command {
	var o simulateOptions
	var out string
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Run policies on workloads and show them side by side, with a lower bound and pictures",
		Long: `Runs every policy on every workload and prints the average completion times side by side, as Markdown (or -o json, csv). The lower bound is what no policy can beat: the
larger of the average of each job alone at its best, and of a single machine that serves the least device time of all jobs, the shortest
first. With --out it also writes the table, the distribution of completion times and the devices in use over time, as SVG and PNG.`,
		Example: `  switchyard-lab simulate compare --traces pollux/traces --workload workload-1.csv,workload-2.csv --policy tiresias,optimus,pollux --out docs/comparison`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.prepare()
			if err != nil {
				return err
			}
			if out != "" {
				if err := os.MkdirAll(out, 0o755); err != nil {
					return exit.Usagef("--out: %v", err)
				}
			}
			runs, err := a.simulate(cmd.Context(), s)
			if err != nil {
				return err
			}
			return a.compare(s, runs, out)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&out, "out", "", "folder for the table and the pictures")
	return cmd
}

func (a *app) compare(s simulation, runs []simrun.Run, out string) error {
	bounds := make([]traces.Bounds, len(s.workloads))
	for i, w := range s.workloads {
		c := s.config
		c.Workload, c.Policy = w, s.policies[0]
		var err error
		if bounds[i], err = traces.LowerBounds(c); err != nil {
			return err
		}
	}
	var text strings.Builder
	writeAverages(&text, s, runs, bounds)
	for i, w := range s.workloads {
		writeComparison(&text, w.Name, ofWorkload(runs, len(s.workloads), i), bounds[i])
	}
	if err := a.printComparison(text.String(), runs, bounds); err != nil || out == "" {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "comparison.md"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	for i, w := range s.workloads {
		if err := drawComparison(out, w.Name, ofWorkload(runs, len(s.workloads), i)); err != nil {
			return fmt.Errorf("draw %s: %w", w.Name, err)
		}
	}
	return nil
}

// compared is a run beside what no policy can beat on its workload.
type compared struct {
	sim.Result
	LowerBoundSeconds float64 `json:"lower_bound_seconds"`
}

// printComparison prints the table, or the same figures for programs. Runs are in the order of the policies, then of
// the workloads.
func (a *app) printComparison(table string, runs []simrun.Run, bounds []traces.Bounds) error {
	all := make([]compared, len(runs))
	rows := [][]string{append(resultColumns(), "lower_bound_seconds")}
	for i, r := range runs {
		all[i] = compared{r.Result, bounds[i%len(bounds)].Best()}
		rows = append(rows, append(resultRow(r.Result), render.Exactly(all[i].LowerBoundSeconds)))
	}
	switch a.Output {
	case "json":
		return a.PrintJSON(all)
	case "csv":
		return a.CSV(rows)
	}
	_, err := io.WriteString(a.Stdout, table)
	return err
}

// ofWorkload are the runs on one workload, in the order of the policies.
func ofWorkload(runs []simrun.Run, workloads, which int) []simrun.Run {
	var some []simrun.Run
	for i := which; i < len(runs); i += workloads {
		some = append(some, runs[i])
	}
	return some
}

// writeAverages is the average completion time of each policy on each workload, and the mean over the workloads.
func writeAverages(w io.Writer, s simulation, runs []simrun.Run, bounds []traces.Bounds) {
	row := func(name string, value func(workload int) float64) {
		fmt.Fprintf(w, "| %s |", name)
		sum := 0.0
		for i := range s.workloads {
			sum += value(i)
			fmt.Fprintf(w, " %.0f |", value(i))
		}
		fmt.Fprintf(w, " %.0f |\n", sum/float64(len(s.workloads)))
	}
	fmt.Fprint(w, "### Average completion times, s\n\n| policy |")
	for _, one := range s.workloads {
		fmt.Fprintf(w, " %s |", one.Name)
	}
	fmt.Fprintf(w, " mean |\n|---|%s\n", strings.Repeat("---|", len(s.workloads)+1))
	for k, p := range s.policies {
		row(p.Name(), func(i int) float64 { return runs[k*len(s.workloads)+i].AvgJCTSeconds })
	}
	row("lower bound", func(i int) float64 { return bounds[i].Best() })
	fmt.Fprintln(w)
}

// writeComparison is one table: a row for each policy.
func writeComparison(w io.Writer, workload string, runs []simrun.Run, bounds traces.Bounds) {
	fmt.Fprintf(w, "### %s\n\n| policy | jobs completed | average JCT, s | / lower bound | p50, s | p99, s | makespan, s | restarts a job | GPUs busy | worst finish-time fairness |\n", workload)
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range runs {
		fmt.Fprintf(w, "| %s | %d of %d | %.0f | %.2f | %.0f | %.0f | %.0f | %.1f | %.0f %% | %.2f |\n", r.Policy, r.Completed, r.Jobs, r.AvgJCTSeconds,
			r.AvgJCTSeconds/bounds.Best(), r.P50JCTSeconds, r.P99JCTSeconds, r.MakespanSeconds, float64(r.Restarts)/float64(max(r.Jobs, 1)),
			100*r.GPUUtilisation, r.WorstFinishTimeFairness)
	}
	fmt.Fprintf(w, "| lower bound | | %.0f | 1 | | | | | | |\n\nEach job alone at its best: %.0f s. Least device time, shortest first: %.0f s.\n\n",
		bounds.Best(), bounds.AloneSeconds, bounds.DeviceTimeSeconds)
}
