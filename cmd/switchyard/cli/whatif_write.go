package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/history"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// The kinds of rows of a what-if.
const (
	kindMeasured   = "measured"
	kindSamePolicy = "same_policy"
	kindWhatIf     = "what_if"
)

// whatIfRow is one way in which the recorded workload went, or would have gone. Its figures are over the jobs that were submitted in the stretch and have
// ended; over all of them where there are none.
type whatIfRow struct {
	Kind   string `json:"kind"`
	Policy string `json:"policy"`
	// Nodes and Devices are all that were ever there.
	Nodes           int                `json:"nodes"`
	Devices         int                `json:"devices"`
	Jobs            int                `json:"jobs"`
	Completed       int                `json:"completed"`
	AvgJCTSeconds   float64            `json:"avg_jct_seconds"`
	P50JCTSeconds   float64            `json:"p50_jct_seconds"`
	P99JCTSeconds   float64            `json:"p99_jct_seconds"`
	MakespanSeconds float64            `json:"makespan_seconds"`
	Restarts        int                `json:"restarts"`
	JCTs            map[string]float64 `json:"jcts"`
	// LeftOut are the recorded jobs that no simulation can tell anything about; in the measured row alone.
	LeftOut []history.LeftOut `json:"left_out,omitempty"`

	// first and last are when the first job was submitted and when the last one ended.
	first, last float64
}

// whatIfResult is what was measured, then simulated.
type whatIfResult struct {
	live history.Live
	rows []whatIfRow
	runs []simulated
}

func measuredRow(live history.Live) whatIfRow {
	row := newRow(kindMeasured, live.Policy, live.Nodes)
	row.LeftOut = live.LeftOut
	for id, h := range live.Happened {
		row.add(id, h.ArrivedSeconds, h.JCTSeconds, h.Starts)
	}
	row.sum(len(live.Happened))
	return row
}

func simulatedRow(live history.Live, s simulation, r simulated, same bool) whatIfRow {
	kind := kindWhatIf
	if same {
		kind = kindSamePolicy
	}
	row := newRow(kind, r.Policy, s.config.Nodes)
	compared := 0
	for _, a := range live.Workload.Jobs {
		if _, happened := live.Happened[a.Name]; !happened && len(live.Happened) > 0 {
			continue
		}
		compared++
		if jct, done := r.JCTs[string(a.Name)]; done {
			row.add(a.Name, a.Seconds, jct, r.Starts[string(a.Name)])
		}
	}
	row.sum(compared)
	return row
}

func newRow(kind, policy string, nodes []train.Node) whatIfRow {
	row := whatIfRow{Kind: kind, Policy: policy, Nodes: len(nodes), JCTs: map[string]float64{}}
	for _, n := range nodes {
		row.Devices += len(n.Devices)
	}
	return row
}

func (r *whatIfRow) add(id train.JobID, arrived, jct float64, starts int) {
	r.JCTs[string(id)] = jct
	if len(r.JCTs) == 1 || arrived < r.first {
		r.first = arrived
	}
	r.last = max(r.last, arrived+jct)
	r.Restarts += max(starts-1, 0)
}

func (r *whatIfRow) sum(jobs int) {
	r.Jobs, r.Completed, r.MakespanSeconds = jobs, len(r.JCTs), r.last-r.first
	var jcts []float64
	for _, jct := range r.JCTs {
		jcts = append(jcts, jct)
	}
	slices.Sort(jcts)
	for _, jct := range jcts {
		r.AvgJCTSeconds += jct / float64(len(jcts))
	}
	r.P50JCTSeconds, r.P99JCTSeconds = sim.Percentile(jcts, 0.5), sim.Percentile(jcts, 0.99)
}

// name is what a row is of, in words.
func (r whatIfRow) name() string {
	switch r.Kind {
	case kindMeasured:
		return "measured: " + r.Policy
	case kindSamePolicy:
		return "simulated: " + r.Policy
	}
	return "what if: " + r.Policy
}

func (a *app) writeWhatIf(r whatIfResult) error {
	for _, l := range r.live.LeftOut {
		_, _ = fmt.Fprintf(a.stderr, "left out: %s %s\n", escapeText(string(l.Job)), l.Why)
	}
	if away := r.live.CameAndWent(); away > 0 {
		_, _ = fmt.Fprintf(a.stderr, "%d of %s came or went, wholly or in part, and so they do in the simulations of this cluster\n", away, plural(len(r.live.Nodes), "node"))
	}
	for _, row := range r.rows[1:] {
		if row.Completed < row.Jobs {
			_, _ = fmt.Fprintf(a.stderr, "%s: %s never completed\n", row.name(), plural(row.Jobs-row.Completed, "job"))
		}
	}
	switch a.output {
	case "json":
		return a.printJSON(r.rows)
	case "csv":
		return runtime(writeWhatIfCSV(a.stdout, r.rows))
	}
	err := a.table("RUN\tNODES\tDEVICES\tJOBS\tDONE\tAVG JCT\tP50\tP99\tMAKESPAN\tRESTARTS", func(w io.Writer) {
		for _, row := range r.rows {
			_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%d\n", escapeText(row.name()), row.Nodes, row.Devices, row.Jobs, row.Completed,
				shortSeconds(row.AvgJCTSeconds), shortSeconds(row.P50JCTSeconds), shortSeconds(row.P99JCTSeconds), shortSeconds(row.MakespanSeconds), row.Restarts)
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, calibration(r.rows[0], r.rows[1]))
	return runtime(err)
}

// shortSeconds prints a time with what can be told apart of it.
func shortSeconds(s float64) string {
	if s < 100 {
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}

// calibration says how far the simulation is from what happened.
func calibration(measured, same whatIfRow) string {
	if measured.Completed == 0 {
		return "no job that was submitted in this time has ended: the figures are predictions for all jobs, and nothing tells how good they are"
	}
	text := fmt.Sprintf("same policy, simulated: %s; measured: %s (average completion time", shortSeconds(same.AvgJCTSeconds), shortSeconds(measured.AvgJCTSeconds))
	if measured.AvgJCTSeconds > 0 {
		text += fmt.Sprintf("; %+.1f %%", 100*(same.AvgJCTSeconds/measured.AvgJCTSeconds-1))
	}
	return text + "): read the other rows with that in mind"
}

func writeWhatIfCSV(out io.Writer, all []whatIfRow) error {
	rows := [][]string{{
		"kind", "policy", "nodes", "devices", "jobs", "completed", "avg_jct_seconds", "p50_jct_seconds", "p99_jct_seconds", "makespan_seconds", "restarts",
	}}
	for _, r := range all {
		rows = append(rows, []string{
			r.Kind, r.Policy, strconv.Itoa(r.Nodes), strconv.Itoa(r.Devices), strconv.Itoa(r.Jobs), strconv.Itoa(r.Completed), exactly(r.AvgJCTSeconds),
			exactly(r.P50JCTSeconds), exactly(r.P99JCTSeconds), exactly(r.MakespanSeconds), strconv.Itoa(r.Restarts),
		})
	}
	return csv.NewWriter(out).WriteAll(rows)
}
