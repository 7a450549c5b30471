package energy

import (
	"cmp"
	"context"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// follow updates the energy progress of jobs: newer attempts and ended epochs of an interval that was just booked, in
// which each job used the energy in recent. attempts are the newest ones in it. It may be repeated with the same
// interval.
func (l *ledger) follow(ctx context.Context, m event.Measured, attempts map[train.JobID]int, recent map[train.JobID]unit.Energy) error {
	for job, attempt := range attempts {
		if a, booked, _, progress := l.look(job); booked && attempt > progress.Attempt {
			if err := l.amend(ctx, job, func(c *train.EnergyProgress) { c.Begin(attempt, a.Energy-recent[job]) }); err != nil {
				return err
			}
		}
	}
	for _, e := range m.Epochs {
		a, booked, job, _ := l.look(e.Job)
		if !booked || l.isClosed(e.Job) {
			continue
		}
		mark := train.EpochEnergy{
			Attempt: e.Attempt, EpochsDone: e.EpochsDone, At: e.At, Loss: e.Loss, Metrics: e.Metrics, Energy: a.Energy - after(m, e, recent[e.Job]),
		}
		// Code that reports no samples trains on the whole set.
		samples := int64(cmp.Or(max(e.Samples, 0), job.Spec.TrainingSetSize))
		if err := l.amend(ctx, e.Job, func(c *train.EnergyProgress) { c.Mark(mark, samples); c.Aim(job.Spec.Target()) }); err != nil {
			return err
		}
	}
	return nil
}

// after returns the energy a job used in an interval after the end of an epoch: the power within an interval counts as
// constant.
func after(m event.Measured, e event.EpochMark, spent unit.Energy) unit.Energy {
	part := m.To.Sub(e.At).Seconds() / m.To.Sub(m.From).Seconds()
	return unit.Energy(float64(spent) * max(min(part, 1), 0))
}

// amend changes the progress of a job, first in the bucket and then in memory.
func (l *ledger) amend(ctx context.Context, job train.JobID, change func(*train.EnergyProgress)) error {
	e, err := l.progress.Modify(ctx, contract.EnergyProgressKey(job), func(c *train.EnergyProgress) (bool, error) {
		c.Job = job
		change(c)
		return true, nil
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run[job] = e.Value
	return nil
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
