package planner

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// recurrences gives the jobs of recurring groups their batch sizes, and notes what these cost. The group's record, changed by compare-and-swap, is all that it
// remembers: it is written before a job is told its batch size, and a job that is not in it as under way is not noted twice.
type recurrences struct {
	bus     *bus.Bus
	log     *slog.Logger
	picture *picture
	groups  *bus.KV[recur.Record]
	ledger  *bus.KV[train.Account]
	policy  recur.Policy
	// eta is what energy counts for jobs that do not say.
	eta float64

	mu sync.Mutex
	// open are the jobs with something left to do: a batch size to choose, or an end to note.
	open map[train.JobID]train.Job
	// capped are those that run and shall not cost too much.
	capped map[train.JobID]train.Job
	// changed has room for one signal that something is new.
	changed chan struct{}
}

func newRecurrences(ctx context.Context, b *bus.Bus, log *slog.Logger, look *picture, eta float64) (*recurrences, error) {
	groups, err := bus.OpenKV[recur.Record](ctx, b, event.BucketGroups)
	if err != nil {
		return nil, err
	}
	ledger, err := bus.OpenKV[train.Account](ctx, b, event.BucketLedger)
	if err != nil {
		return nil, err
	}
	return &recurrences{
		bus: b, log: log, picture: look, groups: groups, ledger: ledger, policy: recur.Switchyard{Prior: recur.StandardPrior()}, eta: eta,
		open: map[train.JobID]train.Job{}, capped: map[train.JobID]train.Job{}, changed: make(chan struct{}, 1),
	}, nil
}

// see takes note of a job's record.
func (r *recurrences) see(e bus.Entry[train.Job], deleted bool) {
	j := e.Value
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.capped, train.JobID(e.Key))
	if !deleted && j.State.Active() && j.Spec.Recurs() && j.Spec.Energy.StopEarly && j.Overspent == "" {
		r.capped[j.ID] = j
	}
	toChoose := !j.AdmittedAt.IsZero() && j.AwaitsBatch()
	if deleted || !j.Spec.Recurs() || !toChoose && !j.State.Terminal() {
		delete(r.open, train.JobID(e.Key))
		return
	}
	r.open[j.ID] = j
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// recurrenceRetry is how long to wait for what is not there yet: nodes, a final account, the register's answer.
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

// GroupKey names the record of a job's group. A tenant's name may hold what a key cannot.
func GroupKey(s train.Spec) string { return fmt.Sprintf("t%x.%s", s.Tenant, s.Energy.Group) }

// SplitGroupKey is the inverse of GroupKey; ok is false for another key.
func SplitGroupKey(key string) (tenant, group string, ok bool) {
	word, group, found := strings.Cut(key, ".")
	word, marked := strings.CutPrefix(word, "t")
	name, err := hex.DecodeString(word)
	return string(name), group, found && marked && err == nil
}

// byGroup gives the open jobs by the key of their group, in the order of their admission.
func (r *recurrences) byGroup() map[string][]train.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	groups := map[string][]train.Job{}
	for _, j := range r.open {
		key := GroupKey(j.Spec)
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

// begin chooses the batch size of a job and tells it. The job stays open until the register shows it.
func (r *recurrences) begin(ctx context.Context, key string, j train.Job) error {
	device := r.picture.highestPower()
	if device == 0 {
		return nil // without devices there is no price of a second, and no job can run
	}
	allowed := recur.Group{
		BatchSizes: j.Spec.Energy.BatchSizes, Default: j.Spec.BatchSize, LimitsWatts: []float64{device},
		MaxPowerWatts: device * float64(j.Spec.MaxDevices), Eta: j.Spec.Eta(r.eta),
	}
	var choice recur.Choice
	e, err := r.groups.Modify(ctx, key, func(record *recur.Record) (write bool, err error) {
		_, begun := record.Running[j.ID]
		choice, err = record.Begin(j.ID, allowed, r.policy)
		return !begun, err
	})
	if err != nil {
		return fmt.Errorf("choose the batch size of %s: %w", j.ID, err)
	}
	return r.bus.Publish(ctx, event.OnceFact(j.ID, event.FactTuned, "tuned", event.Tuned{
		Group: j.Spec.Energy.Group, BatchSize: choice.BatchSize, Submitted: j.Spec.BatchSize, Recurrences: e.Value.Recurrences(),
	}))
}

// end notes what a job has cost, once its account is closed; over says that there is no more to do for it.
func (r *recurrences) end(ctx context.Context, key string, j train.Job) (over bool, err error) {
	record, err := r.groups.Get(ctx, key)
	if errors.Is(err, bus.ErrNotFound) {
		return true, nil
	}
	if _, begun := record.Value.Running[j.ID]; err != nil || !begun {
		return err == nil, err
	}
	account, err := r.ledger.Get(ctx, "job."+string(j.ID))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return false, err
	}
	counts := j.State == train.StateSucceeded || j.State == train.StateFailed
	if counts && !account.Value.Final && !j.LongEnded(time.Now()) {
		return false, nil
	}
	var cost *recur.Attempt
	if counts && account.Value.Final {
		cost = &recur.Attempt{EnergyJoules: account.Value.Energy.Joules(), Seconds: j.RunSeconds, Epochs: j.EpochsDone, Reached: reached(j, account.Value)}
	}
	_, err = r.groups.Modify(ctx, key, func(record *recur.Record) (bool, error) { return record.End(j.ID, cost), nil })
	return err == nil, err
}

// reached says whether a job came to its goal: it ended well, and where its user named a target or gave a rule for convergence, by these.
func reached(j train.Job, a train.Account) bool {
	good := j.Spec.Target() == nil || a.ToTarget != nil
	return j.State == train.StateSucceeded && good && (j.Spec.Stop == nil || j.Spec.Target() != nil || j.ConvergedEpochs > 0)
}
