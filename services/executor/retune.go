package executor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
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

// retuning is how far a running attempt has come with a setting.
type retuning struct {
	generation uint64
	begun      time.Time
	// told says that something was, pending what had not come yet then.
	told    bool
	pending []string
	// heard is when the code of the attempt was first heard of, up when it was first seen to have come up.
	heard, up time.Time
}

func (r retuning) settled() bool { return r.told && len(r.pending) == 0 }

// retune gives a running attempt the system parameters that are wanted, and tells what was done: the epochs that follow are theirs. Those that it was started
// with it has had from the start; for those that take another start it is asked to leave. again is after how long to look again, 0 where there will be news.
func (e *executor) retune(ctx context.Context, a train.Attempt, s launch.Sight) (again time.Duration, err error) {
	wish, key := e.picture.wish(a.Job), diff.ReportKey{Job: a.Job, Number: a.Number}
	before := e.retunings[key]
	if before.generation != wish.Generation {
		before = retuning{generation: wish.Generation, begun: time.Now()}
		e.retunings[key] = before
	}
	if wish.Generation == 0 {
		e.picture.retune(key, train.Reason{}) // what was wanted before is taken back
		return 0, nil
	}
	if before.settled() {
		return 0, nil
	}
	applied, err := e.tune(ctx, a, s, wish)
	if err == nil {
		err = e.confirm(ctx, a, wish, &before, &applied)
	}
	if err != nil {
		return 0, err
	}
	pending := applied.Pending(wish.Values)
	e.picture.retune(key, startAgain(applied, pending))
	if !before.told || !slices.Equal(pending, before.pending) {
		applied.Job, applied.Attempt, applied.Generation, applied.At = a.Job, a.Number, wish.Generation, time.Now().UTC()
		byAgent := wish.Wants(train.SettingMicroBatch) || wish.Wants(train.SettingPowerLimit)
		if !before.told && len(pending) == 0 && !byAgent && a.Setting.Generation == wish.Generation {
			applied.At = s.StartedAt
		}
		if err := e.publish(ctx, retunedFact(wish.Experiment, applied, pending)); err != nil {
			return 0, err
		}
		e.log.Info("system parameters set", "job", a.Job, "attempt", a.Number, "generation", wish.Generation,
			"values", applied.Values, "refused", applied.Refused, "pending", pending)
	}
	before.told, before.pending = true, pending
	e.retunings[key] = before
	if before.settled() {
		return 0, nil
	}
	return launch.Later, nil
}

// planned is how many devices the newest plan gives a job.
func (p *picture) planned(job train.JobID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan.devices(job)
}

// tune has the back end set what it can.
func (e *executor) tune(ctx context.Context, a train.Attempt, s launch.Sight, wish train.Setting) (train.Applied, error) {
	applied, err := e.backend.Retune(ctx, a, s, wish.Only(train.SettingCores, train.SettingMemoryMiB))
	if err != nil {
		return applied, err
	}
	tunable := []string{train.SettingCores, train.SettingMemoryMiB, train.SettingDevices, train.SettingMicroBatch, train.SettingPowerLimit}
	for name := range wish.Values {
		if !slices.Contains(tunable, name) {
			applied.Refuse(name, "it cannot be changed while a job runs")
		}
	}
	if a.Stays == wish.Generation {
		why := "it takes another start, and the job did not leave at the end of an epoch"
		if a.Setting.Generation == wish.Generation {
			why = "its pods may not be made with it"
		}
		for _, name := range applied.Restarts {
			if _, has := applied.Values[name]; has {
				continue
			}
			applied.Refuse(name, why)
		}
	}
	return applied, nil
}

// startAgain is why an attempt has to leave for those of its parameters that are pending; without a code it does not. For other devices the plan has it leave,
// and until there is one, or there will be none, the others wait: it starts again once.
func startAgain(applied train.Applied, pending []string) train.Reason {
	if slices.Contains(pending, train.SettingDevices) {
		return train.Reason{}
	}
	names := slices.DeleteFunc(slices.Clone(pending), func(name string) bool { return !slices.Contains(applied.Restarts, name) })
	if len(names) == 0 {
		return train.Reason{}
	}
	return train.Reason{Code: retuneCode, Message: "it is started with another " + strings.Join(names, ", ")}
}

const retuneCode = "Retuned"

// retune notes whether an attempt has to leave for its system parameters.
func (p *picture) retune(key diff.ReportKey, why train.Reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retunes[key] = why
}

// over forgets an attempt whose end was told.
func (p *picture) over(key diff.ReportKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.retunes, key)
}
