package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// writeResults prints all runs and writes the timeline where one is wanted.
func (a *app) writeResults(runs []simulated, timeline string) error {
	if timeline != "" {
		if err := writeTimeline(timeline, runs); err != nil {
			return runtime(err)
		}
	}
	for _, r := range runs {
		if r.Completed < r.Jobs {
			_, _ = fmt.Fprintf(a.stderr, "%s on %s: %s never completed\n", r.Policy, r.Workload, plural(r.Jobs-r.Completed, "job"))
		}
	}
	switch a.output {
	case "json":
		results := make([]sim.Result, len(runs))
		for i, r := range runs {
			results[i] = r.Result
		}
		return a.printJSON(results)
	case "csv":
		return runtime(writeResultsCSV(a.stdout, runs))
	}
	return a.table("POLICY\tWORKLOAD\tJOBS\tDONE\tAVG JCT\tP50\tP99\tMAKESPAN\tRESTARTS\tGPUS BUSY\tWORST FTF\tDECIDE P50\tP99", func(w io.Writer) {
		for _, r := range runs {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.0f s\t%.0f s\t%.0f s\t%.0f s\t%d\t%.0f%%\t%.2f\t%.2f ms\t%.2f ms\n", r.Policy, r.Workload, r.Jobs, r.Completed,
				r.AvgJCTSeconds, r.P50JCTSeconds, r.P99JCTSeconds, r.MakespanSeconds, r.Restarts, 100*r.GPUUtilisation, r.WorstFinishTimeFairness,
				r.DecideMSP50, r.DecideMSP99)
		}
	})
}

// writeResultsCSV writes one row a run; the completion times of single jobs are in the JSON alone.
func writeResultsCSV(out io.Writer, runs []simulated) error {
	rows := [][]string{resultColumns()}
	for _, r := range runs {
		rows = append(rows, resultRow(r.Result))
	}
	return csv.NewWriter(out).WriteAll(rows)
}

func resultColumns() []string {
	return []string{
		"policy", "workload", "jobs", "completed", "avg_jct_seconds", "p50_jct_seconds", "p99_jct_seconds", "makespan_seconds",
		"restarts", "gpu_utilisation", "worst_finish_time_fairness", "decide_ms_p50", "decide_ms_p99",
	}
}

func resultRow(r sim.Result) []string {
	return []string{
		r.Policy, r.Workload, strconv.Itoa(r.Jobs), strconv.Itoa(r.Completed), exactly(r.AvgJCTSeconds), exactly(r.P50JCTSeconds),
		exactly(r.P99JCTSeconds), exactly(r.MakespanSeconds), strconv.Itoa(r.Restarts), exactly(r.GPUUtilisation), exactly(r.WorstFinishTimeFairness),
		exactly(r.DecideMSP50), exactly(r.DecideMSP99),
	}
}

// exactly prints a number such that it reads back as the same.
func exactly(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// writeTimeline writes one row for each change of an allocation. Placements are node:devices, in order of ranks.
func writeTimeline(path string, runs []simulated) error {
	var text strings.Builder
	rows := [][]string{{"policy", "workload", "seconds", "job", "devices", "placement", "reason"}}
	for _, r := range runs {
		for _, c := range r.history {
			rows = append(rows, []string{
				r.Policy, r.Workload, strconv.FormatFloat(c.seconds, 'f', -1, 64), c.job, strconv.Itoa(c.devices), c.placement, c.reason,
			})
		}
	}
	if err := csv.NewWriter(&text).WriteAll(rows); err != nil {
		return fmt.Errorf("write timeline %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}
