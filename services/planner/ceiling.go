package planner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// running are the jobs that shall not cost too much.
func (r *recurrences) running() []train.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.capped))
}

// stopExpensive tells of a job that it has cost more than the ceiling that was set when its batch size was chosen. The cost is that of the account so far: what a
// record notes of its end.
func (r *recurrences) stopExpensive(ctx context.Context, j train.Job, now time.Time) error {
	group, err := r.groups.Get(ctx, GroupKey(j.Spec))
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	ceiling := group.Value.Running[j.ID].MaxCost
	if err != nil || ceiling == 0 {
		return err
	}
	account, err := r.ledger.Get(ctx, "job."+string(j.ID))
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
