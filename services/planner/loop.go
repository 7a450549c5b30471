package planner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// A change after a quiet time is decided on soon. Changes in a row are gathered for longer if a decision takes long:
// the services that make the changes need processor time, too. In a large cluster something is learned about some job
// all the time, which is less urgent.
const (
	gatherFirst    = 2 * time.Millisecond
	gatherMore     = 50 * time.Millisecond
	newsShare      = 0.2
	newsLongest    = 500 * time.Millisecond
	learnedShare   = 0.05
	learnedLongest = 5 * time.Second
)

// loop decides and tells.
type loop struct {
	bus    *bus.Bus
	log    *slog.Logger
	meters *meters
	cache  *cache
	policy plan.Policy
	// terms are the part of each state that does not change.
	terms    plan.State
	interval time.Duration
	recorder *recorder
	// grid is nil if no tariff of energy is configured.
	grid *grid
	pods *pods
	// verifier compares predictions with what happens.
	verifier *verifier
	// now is the clock by which decisions are made.
	now func() time.Time

	newest
	// arrived is the sequence in the stream of the newest plan that was observed there, also if another planner
	// published it.
	arrived atomic.Uint64
	// published holds what was last published about each job in the plan.
	published map[train.JobID]publication
}

// quietShare bounds the part of a processor that decisions without news take: the longer one takes, the rarer they are.
const (
	quietShare   = 0.002
	quietLongest = time.Minute
)

// run decides at every change and at intervals, since time passes, too.
func (l *loop) run(ctx context.Context, started func()) error {
	ticker := time.NewTicker(l.interval)
	defer ticker.Stop()
	first := true
	var decided time.Time
	var took time.Duration
	var said string
	for {
		if !l.await(ctx, ticker.C, decided, took) {
			return nil
		}
		if !l.cache.ready() {
			continue
		}
		began := time.Now()
		err := l.blind()
		if err == nil {
			err = l.round(ctx)
		}
		if err == nil {
			err = l.pods.settle(ctx, l.now(), l.last)
		}
		decided = time.Now()
		took = decided.Sub(began)
		ticker.Reset(max(l.interval, min(atShare(took, quietShare), quietLongest)))
		if err != nil {
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				l.log.Warn("plan not finished, the next round goes on", "error", err)
			}
			continue
		}
		said = ""
		if first {
			started()
			first = false
		}
	}
}

// await returns when there is something to decide: at a tick, or some time after news. decided is when the last
// decision ended, took how long it lasted. It returns false once ctx has ended.
func (l *loop) await(ctx context.Context, ticks <-chan time.Time, decided time.Time, took time.Duration) bool {
	var learned <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticks:
			return true
		case <-learned:
			return true
		case <-l.cache.learned:
			if learned == nil {
				learned = time.After(max(gatherFirst, gather(took, learnedShare, learnedLongest)-time.Since(decided)))
			}
		case <-l.cache.changed:
			return tick.Pause(ctx, max(gatherFirst, gather(took, newsShare, newsLongest)-time.Since(decided)))
		}
	}
}

// gather returns how long after a decision that took so long the next one may be made, longest at most.
func gather(took time.Duration, share float64, longest time.Duration) time.Duration {
	return min(max(gatherMore, atShare(took, share)), longest)
}

// atShare returns how far apart pieces of work of that length must be to take only this share of the time.
func atShare(work time.Duration, share float64) time.Duration {
	return time.Duration(float64(work) / share)
}

// listen notes the time at each tick.
func (l *loop) listen(ctx context.Context) error {
	for now := range tick.Every(ctx, listenEvery) {
		l.cache.listen(now, l.bus.Ready() == nil)
	}
	return nil
}

// blind returns why no decision can be made now: it would take for gone what the bus has only lost.
func (l *loop) blind() error {
	if err := l.bus.Ready(); errors.Is(err, bus.ErrDamaged) || errors.Is(err, bus.ErrPartial) {
		return err
	}
	return nil
}

// round decides once, publishes the plan if it differs, and then publishes the facts about its jobs. The keys of the
// facts contain the plan's generation, so after a crash in between the first round publishes them again.
func (l *loop) round(ctx context.Context) error {
	if !l.loaded || l.arrived.Load() > l.sequence {
		if err := l.load(ctx); err != nil {
			return err
		}
		// The facts of the newest plan may be missing, if a planner stopped before it published them.
		if err := l.publishNews(ctx); err != nil {
			return err
		}
	}
	// Another planner may win each time, but then there is a plan each time.
	const attempts = 3
	for range attempts {
		next, state, err := l.decide(ctx)
		if err != nil {
			return err
		}
		changed := !l.known && len(next.Allocations)+len(next.Waiting) > 0 || l.known && differs(l.last, next)
		if !changed && !l.spoiled {
			l.last.Memory, l.crowded = next.Memory, false // what the policy has learned since
			break
		}
		err = l.publish(ctx, next)
		if errors.Is(err, bus.ErrConflict) {
			l.meters.conflicts.Inc()
			if err := l.load(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			l.meters.unpublished.Inc()
			l.loaded = false // it may be stored all the same
			return fmt.Errorf("plan %d of %d allocations, the one before it stands: %w", next.Generation, len(next.Allocations), err)
		}
		l.recorder.record(decision.Input{
			Version: decision.InputVersion, Generation: next.Generation, DecidedAt: next.DecidedAt, Policy: l.policy.Name(), Decider: plan.Version,
			PlanSequence: l.sequence, State: state,
		})
		break
	}
	return l.publishNews(ctx)
}

func (l *loop) decide(ctx context.Context) (train.Plan, plan.State, error) {
	now, began := l.now(), time.Now()
	l.cache.listen(now, l.bus.Ready() == nil)
	terms := l.terms
	terms.Rates = l.grid.rates(now)
	state := l.cache.state(now, l.last, l.known, terms)
	if l.log.Enabled(ctx, slog.LevelDebug) {
		input, err := json.Marshal(state)
		if err != nil {
			return train.Plan{}, state, fmt.Errorf("encode the state: %w", err)
		}
		l.log.Debug("deciding", "policy", l.policy.Name(), "state", string(input))
	}
	next := plan.Decide(state, l.policy)
	l.meters.decided(time.Since(began), state.Exclusions)
	next.Generation, next.DecidedAt = max(l.last.Generation, l.cache.generation())+1, now.UTC()
	return next, state, nil
}

// differs reports whether a plan is worth publishing: a job has another device, another batch or another reason for
// it, the order of the waiting jobs changed, a job waits for another kind of reason, or a prediction was wrong. Words
// change all the time.
func differs(a, b train.Plan) bool {
	same := slices.EqualFunc(a.Allocations, b.Allocations, sameAllocation) && slices.EqualFunc(a.Waiting, b.Waiting, func(x, y train.Waiting) bool {
		return x.Job == y.Job && slices.EqualFunc(x.Blockers, y.Blockers, func(r, s train.Reason) bool { return r.Code == s.Code })
	})
	return !same || a.Policy != b.Policy || a.PowerBudgetWatts != b.PowerBudgetWatts || corrects(a, b)
}

func sameAllocation(x, y train.Allocation) bool {
	return x.Job == y.Job && x.Beside == y.Beside && slices.EqualFunc(x.Places(), y.Places(), train.Part.Same) && slices.Equal(x.Servers, y.Servers) && x.Batch == y.Batch &&
		batchCode(x) == batchCode(y)
}

// batchCode is why an allocation has its batch.
func batchCode(a train.Allocation) string {
	if a.BatchChoice == nil {
		return ""
	}
	return a.BatchChoice.Reason.Code
}

// publish appends the plan if no other was appended since the last one was read.
func (l *loop) publish(ctx context.Context, next train.Plan) error {
	sequence, err := l.bus.PublishAfter(ctx, decision.Fact(decision.Fitting(next)), l.sequence)
	if err != nil {
		return err
	}
	crowded := len(next.Waiting)-len(l.last.Waiting) > crowd
	l.newest = newest{last: next, sequence: sequence, known: true, loaded: true, crowded: crowded}
	l.meters.published(next)
	l.verifier.predicted(next)
	l.log.Info("plan decided", "generation", next.Generation, "policy", next.Policy, "allocations", len(next.Allocations), "waiting", len(next.Waiting))
	return nil
}
