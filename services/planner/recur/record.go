package recur

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// attemptsKept is the number of attempts of a group that count, the newest: costs drift, and a record shall stay
// small.
const attemptsKept = 200

// Record decides on the jobs of a recurring group.
type Record contract.Group

// Begin chooses how a job runs and notes that it is under way. Asked again about a job it returns the same choice.
// allowed holds the choices; its attempts are not read.
func (r *Record) Begin(job train.JobID, allowed Group, p Policy) (contract.GroupChoice, error) {
	if c, begun := r.Running[job]; begun {
		return c, nil
	}
	if r.MaxPowerWatts == 0 {
		r.MaxPowerWatts = allowed.MaxPowerWatts
	}
	allowed.Attempts, allowed.Running, allowed.MaxPowerWatts = r.Attempts, len(r.Running), r.MaxPowerWatts
	if err := allowed.Check(); err != nil {
		return contract.GroupChoice{}, err
	}
	if r.Running == nil {
		r.Running = map[train.JobID]contract.GroupChoice{}
	}
	c := p.Next(&allowed)
	for _, other := range r.Running {
		c.Number = max(c.Number, other.Number)
	}
	c.Number++
	r.Running[job] = c
	return c, nil
}

// End notes the cost of a job that was under way, nil if it is unknown or means nothing. It returns false if the
// job is not under way.
func (r *Record) End(job train.JobID, cost *contract.GroupAttempt) bool {
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
