package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// recurrences gives the jobs of recurring groups their batch sizes, and notes what these cost. The group's record,
// changed by compare-and-swap, is its only memory: it is written before a job's batch size is published, and a job
// that is not in it as under way is not noted twice.
type recurrences struct {
	bus    *bus.Bus
	log    *slog.Logger
	cache  *cache
	groups *bus.KV[contract.Group]
	ledger *bus.KV[train.Account]
	policy recur.Policy
	// eta is the weight of energy for jobs that name none.
	eta float64

	mu sync.Mutex
	// open are the jobs with something left to do: a batch size to choose, or an end to note.
	open map[train.JobID]train.Job
	// capped are the running jobs with a cost ceiling.
	capped map[train.JobID]train.Job
	// changed says that something is new.
	changed tick.Signal
}

func newRecurrences(ctx context.Context, b *bus.Bus, log *slog.Logger, known *cache, eta float64) (*recurrences, error) {
	r := &recurrences{
		bus: b, log: log, cache: known, policy: recur.Switchyard{Prior: recur.StandardPrior()}, eta: eta,
		open: map[train.JobID]train.Job{}, capped: map[train.JobID]train.Job{}, changed: tick.NewSignal(),
	}
	return r, errors.Join(bus.Open(ctx, b, contract.Groups, &r.groups), bus.Open(ctx, b, contract.Accounts, &r.ledger))
}

// see enters a job's record.
func (r *recurrences) see(e bus.Entry[*train.Job], deleted bool) {
	j := e.Value
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.capped, train.JobID(e.Key))
	if !deleted && j.State.Active() && j.Spec.Recurs() && j.Spec.Energy.StopEarly && j.Overspent == "" {
		r.capped[j.ID] = *j
	}
	toChoose := !j.AdmittedAt.IsZero() && j.AwaitsBatch()
	if deleted || !j.Spec.Recurs() || !toChoose && !j.State.Terminal() {
		delete(r.open, train.JobID(e.Key))
		return
	}
	r.open[j.ID] = *j
	r.changed.Send()
}

// recurrenceRetry is how long to wait for what is missing: nodes, a final account, the register's answer.
const recurrenceRetry = time.Second

// run works until ctx ends.
func (r *recurrences) run(ctx context.Context) error {
	retry := time.NewTicker(recurrenceRetry)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		case <-retry.C:
		}
		r.pass(ctx)
	}
}

// pass does for the open jobs what can be done now.
func (r *recurrences) pass(ctx context.Context) {
	for key, jobs := range r.byGroup() {
		if err := r.settle(ctx, key, jobs); err != nil && ctx.Err() == nil {
			r.log.Warn("recurring jobs wait", "group", key, "error", err)
		}
	}
	for _, j := range r.running() {
		if err := r.stopExpensive(ctx, j, time.Now()); err != nil && ctx.Err() == nil {
			r.log.Warn("what a job has cost is not known", "job", j.ID, "error", err)
		}
	}
}

// byGroup returns the open jobs by the key of their group, in the order of their admission.
func (r *recurrences) byGroup() map[string][]train.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	groups := map[string][]train.Job{}
	for _, j := range r.open {
		key := contract.GroupKey(j.Spec)
		groups[key] = append(groups[key], j)
	}
	for _, jobs := range groups {
		slices.SortFunc(jobs, func(a, b train.Job) int { return a.AdmittedAt.Compare(b.AdmittedAt) })
	}
	return groups
}

// settle notes the ends of jobs of one group and then chooses for those that begin.
func (r *recurrences) settle(ctx context.Context, key string, jobs []train.Job) error {
	for _, j := range jobs {
		if !j.State.Terminal() {
			continue
		}
		over, err := r.end(ctx, key, j)
		if err != nil {
			return err
		}
		if over {
			r.mu.Lock()
			delete(r.open, j.ID)
			r.mu.Unlock()
		}
	}
	for _, j := range jobs {
		if j.State.Terminal() {
			continue
		}
		if err := r.begin(ctx, key, j); err != nil {
			return err
		}
	}
	return nil
}

// begin chooses the batch size of a job and publishes it. The job stays open until the register shows it.
func (r *recurrences) begin(ctx context.Context, key string, j train.Job) error {
	device := r.cache.highestPower()
	if device == 0 {
		return nil // without devices there is no price of a second, and no job can run
	}
	allowed := recur.Group{
		BatchSizes: j.Spec.Energy.BatchSizes, Default: j.Spec.BatchSize, LimitsWatts: []float64{device},
		MaxPowerWatts: device * float64(j.Spec.MaxDevices), Eta: j.Spec.Eta(r.eta),
	}
	var choice contract.GroupChoice
	e, err := r.groups.Modify(ctx, key, func(record *contract.Group) (write bool, err error) {
		_, begun := record.Running[j.ID]
		choice, err = (*recur.Record)(record).Begin(j.ID, allowed, r.policy)
		return !begun, err
	})
	if err != nil {
		return fmt.Errorf("choose the batch size of %s: %w", j.ID, err)
	}
	return r.bus.Publish(ctx, event.OnceFact(j.ID, event.FactTuned, "tuned", event.Tuned{
		Group: j.Spec.Energy.Group, BatchSize: choice.BatchSize, Submitted: j.Spec.BatchSize, Recurrences: e.Value.Recurrences(),
	}))
}

// end notes the cost of a job once its account is closed. over reports that nothing is left to do for it.
func (r *recurrences) end(ctx context.Context, key string, j train.Job) (over bool, err error) {
	record, err := r.groups.Get(ctx, key)
	if errors.Is(err, bus.ErrNotFound) {
		return true, nil
	}
	if _, begun := record.Value.Running[j.ID]; err != nil || !begun {
		return err == nil, err
	}
	account, err := r.ledger.Get(ctx, contract.AccountKey(j.ID))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return false, err
	}
	counts := j.State == train.StateSucceeded || j.State == train.StateFailed
	if counts && !account.Value.Final && !j.LongEnded(time.Now()) {
		return false, nil
	}
	var cost *contract.GroupAttempt
	if counts && account.Value.Final {
		cost = &contract.GroupAttempt{EnergyJoules: account.Value.Energy.Joules(), Seconds: j.RunSeconds, Epochs: j.EpochsDone, Reached: reached(j, account.Value)}
	}
	_, err = r.groups.Modify(ctx, key, func(record *contract.Group) (bool, error) {
		return (*recur.Record)(record).End(j.ID, cost), nil
	})
	return err == nil, err
}

// reached reports whether a job reached its goal: it ended well and, if its user named a target or a rule for
// convergence, met it.
func reached(j train.Job, a train.Account) bool {
	good := j.Spec.Target() == nil || a.ToTarget != nil
	return j.State == train.StateSucceeded && good && (j.Spec.Stop == nil || j.Spec.Target() != nil || j.ConvergedEpochs > 0)
}

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
