package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
	"github.com/switchyard-dl/switchyard/services/planner/simrun"
)

// writeTimeline writes a CSV file with one row for each change of an allocation, if one is wanted.
func writeTimeline(path string, runs []simrun.Run) error {
	if path == "" {
		return nil
	}
	text, err := simrun.Timeline(runs)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}

// writeResults prints all runs.
func (a *app) writeResults(runs []simrun.Run) error {
	for _, r := range runs {
		if r.Completed < r.Jobs {
			fmt.Fprintf(a.Stderr, "%s on %s: %s never completed\n", r.Policy, r.Workload, render.Plural(r.Jobs-r.Completed, "job"))
		}
	}
	results, rows := make([]sim.Result, len(runs)), [][]string{resultColumns()}
	for i, r := range runs {
		results[i], rows = r.Result, append(rows, resultRow(r.Result))
	}
	// The completion times of single jobs are in the JSON alone.
	return a.write(result{results, rows, "POLICY\tWORKLOAD\tJOBS\tDONE\tAVG JCT\tP50\tP99\tMAKESPAN\tRESTARTS\tGPUS BUSY\tWORST FTF\tDECIDE P50\tP99", func(w io.Writer) {
		for _, r := range runs {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.0f s\t%.0f s\t%.0f s\t%.0f s\t%d\t%.0f%%\t%.2f\t%.2f ms\t%.2f ms\n", r.Policy, r.Workload, r.Jobs, r.Completed,
				r.AvgJCTSeconds, r.P50JCTSeconds, r.P99JCTSeconds, r.MakespanSeconds, r.Restarts, 100*r.GPUUtilisation, r.WorstFinishTimeFairness,
				r.DecideMSP50, r.DecideMSP99)
		}
	}})
}

func resultColumns() []string {
	return []string{
		"policy", "workload", "jobs", "completed", "avg_jct_seconds", "p50_jct_seconds", "p99_jct_seconds", "makespan_seconds",
		"restarts", "gpu_utilisation", "worst_finish_time_fairness", "decide_ms_p50", "decide_ms_p99",
	}
}

func resultRow(r sim.Result) []string {
	return []string{
		r.Policy, r.Workload, strconv.Itoa(r.Jobs), strconv.Itoa(r.Completed), render.Exactly(r.AvgJCTSeconds), render.Exactly(r.P50JCTSeconds),
		render.Exactly(r.P99JCTSeconds), render.Exactly(r.MakespanSeconds), strconv.Itoa(r.Restarts), render.Exactly(r.GPUUtilisation), render.Exactly(r.WorstFinishTimeFairness),
		render.Exactly(r.DecideMSP50), render.Exactly(r.DecideMSP99),
	}
}
