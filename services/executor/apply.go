package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// apply carries out one action other than a start.
func (e *executor) apply(ctx context.Context, action diff.Action) error {
	a, _ := e.cache.attempt(action.Job)
	if a.Number != action.Number {
		return nil // the record has changed since, which is an event
	}
	switch action.Kind {
	case diff.RequestStop:
		if a.Stop == train.StopNone {
			a.StopSince = time.Now().UTC()
		}
		a.Stop = action.Cause
		if err := e.swap(ctx, a); err != nil {
			return err
		}
		e.log.Info("attempt asked to leave", "job", a.Job, "attempt", a.Number, "cause", a.Stop, "reason", action.Reason.Message)
		return e.publishStop(ctx, a, action.Reason)
	case diff.WithdrawStop:
		return e.withdrawStop(ctx, action, a)
	case diff.Rebatch:
		a.Batch, a.BatchGeneration = action.Batch, action.Generation
		return e.swap(ctx, a)
	case diff.Kill:
		return e.kill(ctx, action, a)
	case diff.Decide:
		return e.decide(ctx, a)
	case diff.Publish:
		return e.publishEnd(ctx, a)
	case diff.Cancel:
		return e.cancel(ctx, action, a)
	case diff.Start: // the starter does it
	}
	return fmt.Errorf("apply %q: %w", action.Kind, errors.ErrUnsupported)
}

// publishStop publishes, once for each cause, that an attempt was asked to leave. The record counts, so the fact
// comes after it. An executor that finds such a record publishes the fact again, with the same key.
func (e *executor) publishStop(ctx context.Context, a train.Attempt, reason train.Reason) error {
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	if e.stopPublished[key] == a.Stop {
		return nil
	}
	if err := e.publish(ctx, stopFact(a, reason, e.cache.report(a))); err != nil {
		return err
	}
	e.stopPublished[key] = a.Stop
	return nil
}

// withdrawStop lets an attempt go on. The fact comes first: after a crash in between it is published again, with the
// same key.
func (e *executor) withdrawStop(ctx context.Context, action diff.Action, a train.Attempt) error {
	if err := e.publish(ctx, withdrawnFact(a, action.Generation)); err != nil {
		return err
	}
	if action.Cause == train.StopRetune {
		a.Stays = e.cache.setting(a.Job).Generation
	}
	a.Stop, a.StopSince = train.StopNone, time.Time{}
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	delete(e.stopPublished, diff.ReportKey{Job: a.Job, Number: a.Number})
	e.log.Info("stop withdrawn", "job", a.Job, "attempt", a.Number, "generation", action.Generation)
	return nil
}

// kill records why, then makes the processes end.
func (e *executor) kill(ctx context.Context, action diff.Action, a train.Attempt) error {
	if a.Stop != action.Cause {
		a.Stop, a.StopSince = action.Cause, time.Now().UTC()
		if err := e.swap(ctx, a); err != nil {
			return err
		}
		e.log.Info("ending an attempt", "job", a.Job, "attempt", a.Number, "cause", a.Stop, "reason", action.Reason.Message)
	}
	return e.backend.Stop(ctx, a, time.Now())
}

// decide records what an exit means. It reads the report again, because the agent stores a stop answer before it
// gives it.
func (e *executor) decide(ctx context.Context, a train.Attempt) error {
	report, job, err := e.reportAndJob(ctx, a)
	if err != nil {
		return err
	}
	key, now := diff.ReportKey{Job: a.Job, Number: a.Number}, time.Now()
	due := diff.ReportsDue(a, report, job, e.cache.home(a))
	if wait := e.deciding[key].Next(due, now); due > 0 && !wait.Over(now) {
		e.deciding[key] = wait
		e.cache.queue.addAt(a.Job, now.Add(2*launch.Soon))
		return nil
	}
	delete(e.deciding, key)
	verdict := diff.Judge(a, report, job)
	a.Outcome, a.NotBefore = verdict.Outcome, time.Time{}
	if verdict.Outcome == train.OutcomeRecovering {
		a.NotBefore = time.Now().UTC().Add(verdict.Retry)
	}
	return e.swap(ctx, a)
}

// publishEnd publishes a recorded outcome, records that it did, and forgets the attempt's files.
func (e *executor) publishEnd(ctx context.Context, a train.Attempt) error {
	report, job, err := e.reportAndJob(ctx, a)
	if err != nil {
		return err
	}
	verdict := diff.Details(a, report, job)
	if err := e.publish(ctx, endFact(a, report, verdict, e.memoryNeeded(a, report))); err != nil {
		return err
	}
	a.Published = true
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	e.metrics.outcomes.WithLabelValues(string(a.Outcome)).Inc()
	e.log.Info("attempt ended", "job", a.Job, "attempt", a.Number, "outcome", a.Outcome, "epochs_done", verdict.EpochsDone)
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	delete(e.stopPublished, key)
	e.starts.forget(key)
	e.tuning.forget(key)
	return e.backend.Forget(ctx, a)
}

// memoryNeeded returns how much memory of each device an attempt needs after one that was limited to its share ran
// out of it: half as much again, up to the whole device. How much it would have used is unknown. It returns 0 for all
// other attempts.
func (e *executor) memoryNeeded(a train.Attempt, r train.AttemptReport) unit.Bytes {
	if a.Memory == 0 || r.Enlarged || a.Enforcement != train.EnforcedByMPS || a.Exit == nil || !a.Exit.OutOfDeviceMemory() {
		return 0
	}
	places, err := e.cache.places(a)
	if err != nil {
		return 0 // the node is gone
	}
	needs := a.Memory + a.Memory/2
	for _, d := range (launch.Setting{Places: places}).Devices() {
		needs = min(needs, d.Memory)
	}
	return needs
}

// cancel records the end of a job without processes. A job that was never tried gets a record too, so that no start
// can come in between.
func (e *executor) cancel(ctx context.Context, action diff.Action, a train.Attempt) error {
	if a.Job == "" {
		a = train.Attempt{Job: action.Job, Node: e.realm.Machine, Backend: e.realm.Backend, Phase: train.PhaseExited}
	}
	job, _ := e.cache.job(action.Job)
	a.Outcome, a.Published, a.Resumed = train.OutcomeCancelled, false, job.Resumed
	return e.swap(ctx, a)
}
