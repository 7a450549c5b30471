package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// seeSetting takes note of what is wanted of a job beside its devices.
func (p *picture) seeSetting(e bus.Entry[train.Setting], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := train.JobID(e.Key)
	before, known := p.wishes[id]
	switch {
	case deleted:
		delete(p.wishes, id)
	case known && before.Same(e.Value):
		return
	default:
		p.wishes[id] = e.Value
	}
	p.touch(id)
}

// wish is what is wanted of a job; nothing, where nobody said.
func (p *picture) wish(job train.JobID) train.Setting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wishes[job]
}

// withoutPaused leaves out of a plan what it gives to jobs that are to wait and have left: the plan may be older than the pause. It needs the lock.
func (p *picture) withoutPaused(plan train.Plan) train.Plan {
	kept := plan.Allocations[:0:0]
	for _, w := range plan.Allocations {
		a := p.attempts[w.Job].Value
		done := max(p.jobs[w.Job].Value.EpochsDone, p.reports[diff.ReportKey{Job: w.Job, Number: a.Number}].EpochsDone)
		if a.Live() || !p.wishes[w.Job].Pauses(done) {
			kept = append(kept, w)
		}
	}
	plan.Allocations = kept
	return plan
}

// retune gives a running attempt the system parameters that are wanted, and tells what was done: the epochs that follow are theirs. An attempt that was
// launched with them has had them from the start.
func (e *executor) retune(ctx context.Context, a train.Attempt, s launch.Sight) error {
	wish, key := e.picture.wish(a.Job), diff.ReportKey{Job: a.Job, Number: a.Number}
	if wish.Generation == 0 || e.retuned[key] == wish.Generation {
		return nil
	}
	applied, err := e.backend.Retune(ctx, a, s, wish)
	if err != nil {
		return err
	}
	applied.Job, applied.Attempt, applied.Generation, applied.At = a.Job, a.Number, wish.Generation, time.Now().UTC()
	if e.launchedWith[key] == wish.Generation {
		applied.At = s.StartedAt
	}
	fact := event.TuneFact(string(wish.Experiment), event.FactRetuned, fmt.Sprintf("job/%s/attempt/%d/setting/%d", a.Job, a.Number, wish.Generation),
		event.Retuned{Applied: applied})
	fact.Time = applied.At
	if err := e.publish(ctx, fact); err != nil {
		return err
	}
	e.retuned[key] = wish.Generation
	e.log.Info("system parameters set", "job", a.Job, "attempt", a.Number, "generation", wish.Generation, "values", applied.Values, "refused", applied.Refused)
	return nil
}
