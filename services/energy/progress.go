package energy

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// follow updates the energy progress of jobs: newer attempts and ended epochs of an interval that was just booked, in
// which each job used the energy in recent. The caller holds mu.
func (l *ledger) follow(r reading, recent map[train.JobID]unit.Energy) {
	for job, attempt := range r.attempts() {
		if used, booked := l.used(job); booked && !l.closed[job] && attempt > l.progressOf(job).Attempt {
			l.amend(job, func(c *train.EnergyProgress) { c.Begin(attempt, used-recent[job]) })
		}
	}
	for _, e := range r.Epochs {
		used, booked := l.used(e.Job)
		if !booked || l.closed[e.Job] {
			continue
		}
		mark := train.EpochEnergy{
			Attempt: e.Attempt, EpochsDone: e.EpochsDone, At: e.At, Loss: e.Loss, Metrics: e.Metrics, Energy: used - after(r.Measured, e, recent[e.Job]),
		}
		job := l.jobs[e.Job]
		// Code that reports no samples trains on the whole set.
		samples := int64(cmp.Or(max(e.Samples, 0), job.Spec.TrainingSetSize))
		l.amend(e.Job, func(c *train.EnergyProgress) { c.Mark(mark, samples); c.Aim(job.Spec.Target()) })
	}
}

// used returns the energy of a job over all nodes and lives; booked is false if there is no account of it.
func (l *ledger) used(job train.JobID) (sum unit.Energy, booked bool) {
	for _, node := range l.places[job] {
		sum += l.nodeBooks[node].value.Running[job].Energy
	}
	earlier := l.progressOf(job).Earlier
	if earlier != nil {
		sum += earlier.Energy
	}
	return sum, earlier != nil || len(l.places[job]) > 0
}

// after returns the energy a job used in an interval after the end of an epoch: the power within an interval counts as
// constant.
func after(m event.Measured, e event.EpochMark, spent unit.Energy) unit.Energy {
	part := m.To.Sub(e.At).Seconds() / m.To.Sub(m.From).Seconds()
	return unit.Energy(float64(spent) * max(min(part, 1), 0))
}

// amend changes the progress of a job in memory.
func (l *ledger) amend(job train.JobID, change func(*train.EnergyProgress)) {
	p := l.run[job]
	if p == nil {
		p = &page[train.EnergyProgress]{}
		l.run[job] = p
	}
	p.value.Job, p.changed = job, true
	change(&p.value)
}

// wasteOf returns the energy a job used in vain. A failed job has wasted everything. If the supervisor finds the job's
// checkpoints by a pattern, nobody knows how much work they hold.
func wasteOf(used unit.Energy, job train.Job, progress train.EnergyProgress) map[train.WasteCause]unit.Energy {
	if job.State == train.StateFailed && used > 0 {
		return map[train.WasteCause]unit.Energy{train.WasteFailed: used}
	}
	if job.Spec.Checkpoint != "" {
		return nil
	}
	return progress.Waste(func(attempt int) train.WasteCause {
		if slices.ContainsFunc(job.History, func(c train.Change) bool { return c.Attempt == attempt && c.Fact == event.FactPreempted }) {
			return train.WastePreempted
		}
		return train.WasteFailed
	})
}
