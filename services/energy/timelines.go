package energy

import (
	"context"
	"errors"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
	"github.com/switchyard-dl/switchyard/services/energy/series"
)

// happened writes a batch of facts of jobs, in the same order of steps.
func (r *recorder) happened(ctx context.Context, batch []bus.Message) error {
	timelines := map[train.JobID]bus.Entry[contract.JobSeries]{}
	var points []series.Point
	for _, m := range batch {
		if m.ParseErr != nil {
			continue
		}
		job := train.JobID(m.Parsed.ID)
		c, opened := timelines[job]
		if !opened {
			var err error
			if c, err = r.timelines.Get(ctx, contract.SeriesJobKey(job)); err != nil && !errors.Is(err, bus.ErrNotFound) {
				return err
			}
		}
		seen, err := r.seen(ctx, job, m)
		if err != nil {
			return err
		}
		points = append(points, (*series.Timeline)(&c.Value).Add(seen)...)
		timelines[job] = c
	}
	if err := r.write(ctx, influx.Bucket(r.config.InfluxDatabase, series.Raw), points); err != nil {
		return err
	}
	for job, c := range timelines {
		if _, err := r.timelines.Swap(ctx, contract.SeriesJobKey(job), c.Value, c.Revision); err != nil {
			return err
		}
	}
	return nil
}

// lateAfter is how long after an epoch's or a job's end the recorder waits for its energy: several intervals, and
// longer than the ledger waits for a silent node.
const lateAfter = 2 * settleAfter

// seen combines a fact with the records of its job.
func (r *recorder) seen(ctx context.Context, id train.JobID, m bus.Message) (series.Seen, error) {
	job, err := r.jobs.Get(ctx, string(id))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return series.Seen{}, err
	}
	seen := series.Seen{Job: job.Value, Fact: m.Parsed.Fact, Data: m.Data, Time: m.Time, Sequence: m.Sequence, Price: r.grid.Price}
	switch m.Parsed.Fact {
	case event.FactPlanned:
		seen.Policy, err = r.policy(ctx)
	case event.FactEpochEnded:
		seen.Epoch, err = r.epoch(ctx, id, m)
	case event.FactSucceeded, event.FactFailed, event.FactCancelled:
		seen.Account, err = r.account(ctx, id, m)
	}
	return seen, err
}

// account returns the final account of an ended job, or the running one if it is not closed in time.
func (r *recorder) account(ctx context.Context, job train.JobID, m bus.Message) (account train.Account, err error) {
	err = r.await(ctx, m, func() (bool, error) {
		e, err := r.accounts.Get(ctx, contract.AccountKey(job))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return false, err
		}
		account = e.Value
		return account.Final, nil
	})
	return account, err
}

// epoch returns the energy that the ledger booked for an epoch, or nil if it does not in time. The agent reports an
// epoch in its next interval.
func (r *recorder) epoch(ctx context.Context, job train.JobID, m bus.Message) (found *unit.Energy, err error) {
	ended, err := event.Decode[event.EpochEnded](m.Data)
	if err != nil {
		return nil, nil //nolint:nilerr // what cannot be read has no epoch
	}
	err = r.await(ctx, m, func() (bool, error) {
		progress, err := r.progress.Get(ctx, contract.EnergyProgressKey(job))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return false, err
		}
		energy, booked := series.EpochEnergy(progress.Value, ended)
		if booked {
			found = &energy
		}
		return booked, nil
	})
	return found, err
}

// await polls the ledger until it has booked a fact, or the fact is too old to wait for.
func (r *recorder) await(ctx context.Context, m bus.Message, booked func() (bool, error)) error {
	const every = 200 * time.Millisecond
	for {
		if done, err := booked(); done || err != nil {
			return err
		}
		if time.Since(m.Stored) > lateAfter {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// policy returns the policy of the newest plan.
func (r *recorder) policy(ctx context.Context) (string, error) {
	newest := event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}
	plan, _, err := bus.LastOf[event.PlanDecided](ctx, r.bus, event.StreamPlans, newest)
	return plan.Policy, err
}
