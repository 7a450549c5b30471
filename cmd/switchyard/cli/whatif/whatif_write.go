package whatif

import (
	"fmt"
	"io"
	"strconv"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// writeWhatIf prints an answer in the form asked for.
func writeWhatIf(a *console.Console, r whatif.Answer) error {
	for _, l := range r.Rows[0].LeftOut {
		fmt.Fprintf(a.Stderr, "left out: %s %s\n", render.EscapeText(string(l.Job)), l.Why)
	}
	if r.CameAndWent > 0 {
		fmt.Fprintf(a.Stderr, "%d of %s came or went, wholly or in part, and so they do in the simulations of this cluster\n", r.CameAndWent, render.Plural(r.Nodes, "node"))
	}
	for _, row := range r.Rows[1:] {
		if row.Completed < row.Jobs {
			fmt.Fprintf(a.Stderr, "%s: %s never completed\n", row.Name(), render.Plural(row.Jobs-row.Completed, "job"))
		}
	}
	switch a.Output {
	case "json":
		return a.PrintJSON(r.Rows)
	case "csv":
		return a.CSV(whatIfRows(r.Rows))
	}
	err := a.Table("RUN\tNODES\tDEVICES\tJOBS\tDONE\tAVG JCT\tP50\tP99\tMAKESPAN\tRESTARTS", func(w io.Writer) {
		for _, row := range r.Rows {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%d\n", render.EscapeText(row.Name()), row.Nodes, row.Devices, row.Jobs, row.Completed,
				shown(row, row.AvgJCTSeconds), shown(row, row.P50JCTSeconds), shown(row, row.P99JCTSeconds), shown(row, row.MakespanSeconds), row.Restarts)
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stdout, calibration(r.Rows[0], r.Rows[1]))
	return err
}

// shown prints a time of a row; a dash if none of its jobs completed.
func shown(r whatif.Row, seconds float64) string {
	if r.Completed == 0 {
		return "-"
	}
	return shortSeconds(seconds)
}

// shortSeconds prints a time with its significant digits.
func shortSeconds(s float64) string {
	if s < 100 {
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}

// calibration compares the simulation with what happened.
func calibration(measured, same whatif.Row) string {
	if measured.Completed == 0 {
		return "no job of this time has ended: all figures are predictions, and nothing shows how good they are"
	}
	if same.Completed == 0 {
		return "no job completed in the simulation of what happened: nothing shows how good the other rows are"
	}
	text := fmt.Sprintf("same policy, simulated: %s; measured: %s (average completion time", shortSeconds(same.AvgJCTSeconds), shortSeconds(measured.AvgJCTSeconds))
	if measured.AvgJCTSeconds > 0 {
		text += fmt.Sprintf("; %+.1f %%", 100*(same.AvgJCTSeconds/measured.AvgJCTSeconds-1))
	}
	return text + "): expect the other rows to be as far off"
}

func whatIfRows(all []whatif.Row) [][]string {
	rows := [][]string{{
		"kind", "policy", "nodes", "devices", "jobs", "completed", "avg_jct_seconds", "p50_jct_seconds", "p99_jct_seconds", "makespan_seconds", "restarts",
	}}
	for _, r := range all {
		rows = append(rows, []string{
			r.Kind, r.Policy, strconv.Itoa(r.Nodes), strconv.Itoa(r.Devices), strconv.Itoa(r.Jobs), strconv.Itoa(r.Completed), render.Exactly(r.AvgJCTSeconds),
			render.Exactly(r.P50JCTSeconds), render.Exactly(r.P99JCTSeconds), render.Exactly(r.MakespanSeconds), strconv.Itoa(r.Restarts),
		})
	}
	return rows
}
