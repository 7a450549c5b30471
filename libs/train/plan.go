package train

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Plan is the planner's whole decision: which job holds which devices, and why the others wait.
type Plan struct {
	Generation uint64    `json:"generation"`
	Policy     string    `json:"policy"`
	DecidedAt  time.Time `json:"decided_at"`
	// Allocations are ordered by job id; a job that is not listed gets nothing.
	Allocations []Allocation `json:"allocations"`
	// Waiting are the jobs that got nothing, in the order in which they would be served.
	Waiting []Waiting `json:"waiting,omitempty"`
	// PowerBudgetWatts bounds what all devices together are predicted to draw by this plan; 0: no bound.
	PowerBudgetWatts float64 `json:"power_budget_watts,omitempty"`
	// Memory is the state a policy keeps between decisions, in its own format, for example its queues. The policy also
	// decides without it.
	Memory string `json:"memory,omitempty"`
}

// Part is the devices on one node of a gang.
type Part struct {
	Node    NodeID     `json:"node"`
	Devices []DeviceID `json:"devices"`
	// Memory is the job's part of each device; 0 is the whole device, which no other job then uses.
	Memory unit.Bytes `json:"memory_bytes,omitempty"`
}

// ServerPart is the parameter servers on one node.
type ServerPart struct {
	Node NodeID `json:"node"`
	// Count is the number of servers on the node.
	Count int `json:"count"`
}

// Allocation gives devices to a job: Node and Devices for a single node, Parts for a gang over several nodes.
type Allocation struct {
	Job     JobID      `json:"job"`
	Node    NodeID     `json:"node"`
	Devices []DeviceID `json:"devices"`
	// Memory is the job's part of each device if it may share them; 0 is the whole device. Beside is the primary job of
	// the devices, if this one joined it as a guest.
	Memory unit.Bytes `json:"memory_bytes,omitempty"`
	Beside JobID      `json:"beside,omitempty"`
	Reason Reason     `json:"reason"`
	// Parts are set instead of Node and Devices if the gang spans several nodes, in the order of its ranks.
	Parts []Part `json:"parts,omitempty"`
	// Servers are the job's parameter servers, on nodes where it has workers; the workers have a device each. The
	// executor starts exactly these.
	Servers []ServerPart `json:"servers,omitempty"`
	// Batch is set by policies that choose it together with the devices, BatchChoice says why.
	Batch       Batch        `json:"batch,omitzero"`
	BatchChoice *BatchChoice `json:"batch_choice,omitempty"`
	// RemainingSeconds is the predicted time to the end of the job on this allocation; 0 if unknown.
	RemainingSeconds float64 `json:"remaining_seconds,omitempty"`
	// Forecast is when the job ends, with an interval.
	Forecast Forecast `json:"forecast,omitzero"`
}

// Places returns the parts of the allocation, for one node as well.
func (a Allocation) Places() []Part {
	if len(a.Parts) > 0 {
		return a.Parts
	}
	return []Part{{Node: a.Node, Devices: a.Devices, Memory: a.Memory}}
}

// ServerCount returns the number of parameter servers on all nodes.
func (a Allocation) ServerCount() int { return CountServers(a.Servers) }

// CountServers returns the number of parameter servers on all nodes.
func CountServers(parts []ServerPart) int {
	sum := 0
	for _, s := range parts {
		sum += s.Count
	}
	return sum
}

// SameServers reports whether a and b are as many parameter servers on the same nodes, in any order.
func SameServers(a, b []ServerPart) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(s ServerPart) bool { return !slices.Contains(b, s) })
}

// Waiting explains why a job got nothing.
type Waiting struct {
	Job JobID `json:"job"`
	// Blockers are all the reasons, the dominant one first.
	Blockers []Reason `json:"blockers"`
	// StartInSeconds is the predicted time from the decision to the job's start; 0 if unknown.
	StartInSeconds float64 `json:"start_in_seconds,omitempty"`
	// Forecast is when the job starts and ends, with intervals.
	Forecast Forecast `json:"forecast,omitzero"`
	// Holders are jobs with devices that the job could use, those first that end first, at most MaxHolders.
	Holders []JobID `json:"holders,omitempty"`
}

// MaxHolders bounds the holders that are named for a waiting job.
const MaxHolders = 5

// Find returns the allocation of a job.
func (p Plan) Find(job JobID) (Allocation, bool) {
	for _, a := range p.Allocations {
		if a.Job == job {
			return a, true
		}
	}
	return Allocation{}, false
}

// WaitingByJob returns the waiting jobs by their ids, for many searches in a long plan.
func (p Plan) WaitingByJob() map[JobID]*Waiting {
	by := make(map[JobID]*Waiting, len(p.Waiting))
	for i := range p.Waiting {
		by[p.Waiting[i].Job] = &p.Waiting[i]
	}
	return by
}

// ByJob returns the allocations by job, for many searches in a long plan.
func (p Plan) ByJob() map[JobID]*Allocation {
	by := make(map[JobID]*Allocation, len(p.Allocations))
	for i := range p.Allocations {
		by[p.Allocations[i].Job] = &p.Allocations[i]
	}
	return by
}

// Forecast is when a job starts and ends by a plan, in seconds after its decision. The truth lies between Low and High
// in eight of ten cases. A part is nil if it is unknown; a job that has devices has no Start.
type Forecast struct {
	// Start is when the job gets its devices.
	Start *Span `json:"start,omitempty"`
	// Finish is when it ends.
	Finish *Span `json:"finish,omitempty"`
}

// Moment is a predicted time with its interval.
type Moment struct {
	// Expected is the most likely time. The truth lies between Low and High in eight of ten cases.
	Expected time.Time `json:"expected"`
	Low      time.Time `json:"low"`
	High     time.Time `json:"high"`
}

// Predicted is a Forecast by the clock. All views show this.
type Predicted struct {
	// Start is when the job gets its devices; nil if it has them. Finish is when it ends.
	Start  *Moment `json:"start,omitempty"`
	Finish *Moment `json:"finish,omitempty"`
}

// Predicted returns when a job starts and ends by the plan.
func (p Plan) Predicted(job JobID) Predicted {
	if a, found := p.Find(job); found {
		return p.end(a)
	}
	for _, w := range p.Waiting {
		if w.Job == job {
			return p.wait(w)
		}
	}
	return Predicted{}
}

// Predictions returns Predicted for all jobs of the plan.
func (p Plan) Predictions() map[JobID]Predicted {
	all := make(map[JobID]Predicted, len(p.Waiting)+len(p.Allocations))
	for _, w := range p.Waiting {
		all[w.Job] = p.wait(w)
	}
	for _, a := range p.Allocations {
		all[a.Job] = p.end(a)
	}
	return all
}

func (p Plan) end(a Allocation) Predicted {
	return Predicted{Finish: p.moment(a.Forecast.Finish, a.RemainingSeconds)}
}

func (p Plan) wait(w Waiting) Predicted {
	return Predicted{Start: p.moment(w.Forecast.Start, w.StartInSeconds), Finish: p.moment(w.Forecast.Finish, 0)}
}

// moment is a span by the clock. Plans of older planners have only the expected time.
func (p Plan) moment(s *Span, expected float64) *Moment {
	if s == nil && expected <= 0 {
		return nil
	}
	if s == nil {
		s = &Span{Expected: expected, Low: expected, High: expected}
	}
	const century = 100 * 365 * 24 * 3600.0
	at := func(seconds float64) time.Time {
		return p.DecidedAt.Add(time.Duration(min(seconds, century) * float64(time.Second)))
	}
	return &Moment{Expected: at(s.Expected), Low: at(s.Low), High: at(s.High)}
}
