package planner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// running returns the jobs that have a cost ceiling.
func (r *recurrences) running() []train.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.capped))
}

// stopExpensive publishes that a job has cost more than the ceiling that was set when its batch size was chosen.
// The cost is that of the account so far, the cost that a record notes at the end.
func (r *recurrences) stopExpensive(ctx context.Context, j train.Job, now time.Time) error {
	group, err := r.groups.Get(ctx, contract.GroupKey(j.Spec))
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	ceiling := group.Value.Running[j.ID].MaxCost
	if err != nil || ceiling == 0 {
		return err
	}
	account, err := r.ledger.Get(ctx, contract.AccountKey(j.ID))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return err
	}
	seconds := j.RunSeconds
	if !j.AttemptStartedAt.IsZero() {
		seconds += max(now.Sub(j.AttemptStartedAt).Seconds(), 0)
	}
	cost := recur.Cost(j.Spec.Eta(r.eta), group.Value.MaxPowerWatts, account.Value.Energy.Joules(), seconds)
	if cost <= ceiling {
		return nil
	}
	return r.bus.Publish(ctx, event.OnceFact(j.ID, event.FactOverspent, "overspent", event.Overspent{
		Group: j.Spec.Energy.Group, CostJoules: cost, CeilingJoules: ceiling,
	}))
}
