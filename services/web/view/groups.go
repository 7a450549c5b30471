package view

import (
	"cmp"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Group is a group of recurring jobs, as its record shows it.
type Group struct {
	// Group is the name that the jobs share.
	Group string `json:"group"`
	// Tenant is whose jobs they are.
	Tenant string `json:"tenant"`
	// Recurrences counts the jobs that reached their target.
	Recurrences int `json:"recurrences"`
	// Batches are the batch sizes tried, the smallest first.
	Batches []GroupBatch `json:"batch_sizes"`
	// Running are the jobs under way, in the order in which they began.
	Running []GroupJob `json:"running,omitempty"`
	// Attempts are the jobs that have ended, in that order.
	Attempts []Recurrence `json:"attempts"`
}

// GroupBatch is the mean of the jobs that reached their target with a batch size.
type GroupBatch struct {
	BatchSize int `json:"batch_size"`
	// Jobs counts them.
	Jobs int `json:"jobs"`
	// EnergyJoules and Seconds are what such a job took until it reached its target.
	EnergyJoules float64 `json:"energy_j"`
	Seconds      float64 `json:"seconds"`
	// LimitWatts is the best power limit found, or 0 if none is known yet.
	LimitWatts float64 `json:"limit_w,omitempty"`
}

// GroupJob is a running job with the batch size chosen for it.
type GroupJob struct {
	Job       train.JobID `json:"job"`
	BatchSize int         `json:"batch_size"`
}

// Recurrence is a job that has ended. A job that missed its target belongs to the recurrence of the next job that
// reached it.
type Recurrence struct {
	// Recurrence counts from 1.
	Recurrence int `json:"recurrence"`
	contract.GroupAttempt
}

// Groups returns groups in the order of their names, from the records of the contract by their keys.
func Groups(records map[string]contract.Group) []Group {
	groups := []Group{}
	for key, record := range records {
		if tenant, group, ok := contract.SplitGroupKey(key); ok {
			groups = append(groups, newGroup(tenant, group, record))
		}
	}
	slices.SortFunc(groups, func(x, y Group) int { return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Tenant, y.Tenant)) })
	return groups
}

func newGroup(tenant, group string, r contract.Group) Group {
	g := Group{Group: group, Tenant: tenant, Recurrences: r.Recurrences(), Batches: []GroupBatch{}, Attempts: []Recurrence{}}
	sizes := map[int]bool{}
	number := 1
	for _, a := range r.Attempts {
		sizes[a.BatchSize] = true
		g.Attempts = append(g.Attempts, Recurrence{number, a})
		if a.Reached {
			number++
		}
	}
	for _, job := range r.UnderWay() {
		sizes[r.Running[job].BatchSize] = true
		g.Running = append(g.Running, GroupJob{job, r.Running[job].BatchSize})
	}
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		b := GroupBatch{BatchSize: size, LimitWatts: r.LimitsWatts[size]}
		if taken := r.Taken[size]; taken.Jobs > 0 {
			b.Jobs, b.EnergyJoules, b.Seconds = taken.Jobs, taken.EnergyJoules/float64(taken.Jobs), taken.Seconds/float64(taken.Jobs)
		}
		g.Batches = append(g.Batches, b)
	}
	return g
}

// Chosen returns the batch size and the power limit of the newest running job, else of the job that ended last.
func (g Group) Chosen() (batch int, limitWatts float64) {
	switch {
	case len(g.Running) > 0:
		batch = g.Running[len(g.Running)-1].BatchSize
	case len(g.Attempts) > 0:
		batch = g.Attempts[len(g.Attempts)-1].BatchSize
	}
	for _, b := range g.Batches {
		if b.BatchSize == batch {
			limitWatts = b.LimitWatts
		}
	}
	return batch, limitWatts
}
