package recur

import (
	"cmp"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// attemptsKept are the newest attempts of a group that count: costs drift, and a record shall stay small.
const attemptsKept = 200

// Record is what is kept of a group: what its jobs cost, and those under way.
type Record struct {
	Attempts []Attempt `json:"attempts,omitempty"`
	// Running are the jobs under way and how each runs.
	Running map[train.JobID]Choice `json:"running,omitempty"`
	// LimitsWatts are the power limits that were found best, by batch size, and Unlimited is an epoch at the highest one that was tried then.
	LimitsWatts map[int]float64 `json:"limits_watts,omitempty"`
	Unlimited   map[int]Window  `json:"unlimited,omitempty"`
	// Taken is what the jobs took in all, by batch size, those included whose attempts are forgotten.
	Taken map[int]Taken `json:"taken,omitempty"`
	// MaxPowerWatts is that of the first job: costs compare only at one price of a second.
	MaxPowerWatts float64 `json:"max_power_watts,omitempty"`
}

// Begin chooses how a job runs and notes that it is under way. Asked again about a job it gives the same answer. Allowed says what may be chosen; its attempts
// are not read.
func (r *Record) Begin(job train.JobID, allowed Group, p Policy) (Choice, error) {
	if c, begun := r.Running[job]; begun {
		return c, nil
	}
	if r.MaxPowerWatts == 0 {
		r.MaxPowerWatts = allowed.MaxPowerWatts
	}
	allowed.Attempts, allowed.Running, allowed.MaxPowerWatts = r.Attempts, len(r.Running), r.MaxPowerWatts
	if err := allowed.Check(); err != nil {
		return Choice{}, err
	}
	if r.Running == nil {
		r.Running = map[train.JobID]Choice{}
	}
	c := p.Next(&allowed)
	for _, other := range r.Running {
		c.Number = max(c.Number, other.Number)
	}
	c.Number++
	r.Running[job] = c
	return c, nil
}

// End notes what a job that was under way has cost, nil where that is not known or tells nothing. False where the job is not under way, or no longer.
func (r *Record) End(job train.JobID, cost *Attempt) bool {
	c, begun := r.Running[job]
	if !begun {
		return false
	}
	delete(r.Running, job)
	if cost == nil {
		return true
	}
	cost.BatchSize = c.BatchSize
	r.take(*cost)
	r.Attempts = append(r.Attempts, *cost)
	r.Attempts = slices.Clone(r.Attempts[max(len(r.Attempts)-attemptsKept, 0):])
	return true
}

// UnderWay are the jobs under way in the order in which they began.
func (r *Record) UnderWay() []train.JobID {
	return slices.SortedFunc(maps.Keys(r.Running), func(a, b train.JobID) int {
		return cmp.Or(cmp.Compare(r.Running[a].Number, r.Running[b].Number), cmp.Compare(a, b))
	})
}

// Recurrences is how many jobs have reached their target.
func (r *Record) Recurrences() int { return (&Group{Attempts: r.Attempts}).Recurrences() }
