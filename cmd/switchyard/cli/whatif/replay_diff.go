package whatif

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// difference is how two plans differ about one job.
type difference struct {
	// Job is empty for what concerns the plan as a whole.
	Job train.JobID `json:"job,omitempty"`
	Was string      `json:"was"`
	Now string      `json:"now"`
}

// String describes the difference.
func (d difference) String() string {
	subject := string(d.Job)
	if subject == "" {
		subject = "the plan"
	}
	return fmt.Sprintf("%s %s, instead of: %s", subject, d.Now, d.Was)
}

// planDifferences lists the differences of two plans, job by job: devices and place in the queue first and, if these
// are the same, the reasons.
func planDifferences(was, now train.Plan) []difference {
	before, after := sayings(was), sayings(now)
	jobs := maps.Clone(before)
	maps.Copy(jobs, after)
	var all []difference
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		x, y := before[id], after[id]
		switch {
		case x.what != y.what:
			all = append(all, difference{id, or(x.what, "is not in it"), or(y.what, "is not in it")})
		case was.Policy == now.Policy && !reflect.DeepEqual(x.whole, y.whole):
			all = append(all, difference{id, x.why, y.what + ": " + y.why})
		}
	}
	if was.Policy == now.Policy && was.Memory != now.Memory {
		all = append(all, difference{Was: fmt.Sprintf("%.200q", was.Memory), Now: fmt.Sprintf("remembers %.200q", now.Memory)})
	}
	return all
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// saying is the part of a plan about a job.
type saying struct {
	what, why string
	whole     any
}

func sayings(p train.Plan) map[train.JobID]saying {
	said := map[train.JobID]saying{}
	for _, a := range p.Allocations {
		var parts []string
		for _, part := range a.Places() {
			parts = append(parts, fmt.Sprintf("%s of node %s", train.JoinDevices(part.Devices), part.Node))
		}
		what := "gets " + strings.Join(parts, " and ")
		if a.Batch != (train.Batch{}) {
			what += fmt.Sprintf(" with batch %d a device, accumulated %d times", a.Batch.LocalBatch, a.Batch.Accumulation)
		}
		said[a.Job] = saying{what, fmt.Sprintf("%s (%.0f s left)", a.Reason, a.RemainingSeconds), a}
	}
	for i, w := range p.Waiting {
		why := ""
		if len(w.Blockers) > 0 {
			why = w.Blockers[0].String()
		}
		said[w.Job] = saying{fmt.Sprintf("waits at place %d", i+1), fmt.Sprintf("%s (start in %.0f s)", why, w.StartInSeconds), w}
	}
	return said
}
