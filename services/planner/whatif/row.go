package whatif

import (
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/history"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// The kinds of rows.
const (
	KindMeasured   = "measured"
	KindSamePolicy = "same_policy"
	KindWhatIf     = "what_if"
)

// Row is one way in which the recorded workload went, or would have gone. Its figures are over the jobs that were
// submitted in the time asked for and have ended; over all jobs if none has.
type Row struct {
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

// NewAnswer makes an answer of the simulations that Question.Plan returned and their results.
func NewAnswer(live history.Live, simulations []sim.Config, results []sim.Result) Answer {
	a := Answer{Rows: []Row{measured(live)}, Nodes: len(live.Nodes), CameAndWent: live.CameAndWent()}
	for i, r := range results {
		a.Rows = append(a.Rows, simulated(live, simulations[i].Nodes, r, i == 0))
	}
	return a
}

func measured(live history.Live) Row {
	row := newRow(KindMeasured, live.Policy, live.Nodes)
	row.LeftOut = live.LeftOut
	for id, h := range live.Happened {
		row.add(id, h.ArrivedSeconds, h.JCTSeconds, h.Starts)
	}
	row.sum(len(live.Happened))
	return row
}

func simulated(live history.Live, nodes []train.Node, r sim.Result, same bool) Row {
	kind := KindWhatIf
	if same {
		kind = KindSamePolicy
	}
	row := newRow(kind, r.Policy, nodes)
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

func newRow(kind, policy string, nodes []train.Node) Row {
	row := Row{Kind: kind, Policy: policy, Nodes: len(nodes), JCTs: map[string]float64{}}
	for _, n := range nodes {
		row.Devices += len(n.Devices)
	}
	return row
}

func (r *Row) add(id train.JobID, arrived, jct float64, starts int) {
	r.JCTs[string(id)] = jct
	if len(r.JCTs) == 1 || arrived < r.first {
		r.first = arrived
	}
	r.last = max(r.last, arrived+jct)
	r.Restarts += max(starts-1, 0)
}

func (r *Row) sum(jobs int) {
	r.Jobs, r.Completed, r.MakespanSeconds = jobs, len(r.JCTs), r.last-r.first
	jcts := slices.Sorted(maps.Values(r.JCTs))
	for _, jct := range jcts {
		r.AvgJCTSeconds += jct / float64(len(jcts))
	}
	r.P50JCTSeconds, r.P99JCTSeconds = sim.Percentile(jcts, 0.5), sim.Percentile(jcts, 0.99)
}

// Name says in words what a row is about.
func (r Row) Name() string {
	switch r.Kind {
	case KindMeasured:
		return "measured: " + r.Policy
	case KindSamePolicy:
		return "simulated: " + r.Policy
	}
	return "what if: " + r.Policy
}
