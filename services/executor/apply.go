package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// apply does one action other than a start.
func (e *executor) apply(ctx context.Context, action diff.Action) error {
	a, _ := e.picture.attempt(action.Job)
	if a.Number != action.Number {
		return nil // the record changed since, which is news
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
		return e.tellStop(ctx, a, action.Reason)
	case diff.WithdrawStop:
		return e.withdrawStop(ctx, action, a)
	case diff.Kill:
		return e.kill(ctx, action, a)
	case diff.Decide:
		return e.decide(ctx, a)
	case diff.Tell:
		return e.tell(ctx, a)
	case diff.Cancel:
		return e.cancel(ctx, action, a)
	case diff.Start: // applyStarts does it
	}
	return fmt.Errorf("apply %q: %w", action.Kind, errors.ErrUnsupported)
}

// tellStop tells once for each cause that an attempt was asked to leave. The record is what counts, so the fact comes after it; an executor that finds such a record tells
// it again, with the same key.
func (e *executor) tellStop(ctx context.Context, a train.Attempt, reason train.Reason) error {
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	if e.stopTold[key] == a.Stop {
		return nil
	}
	if err := e.publish(ctx, stopFact(a, reason)); err != nil {
		return err
	}
	e.stopTold[key] = a.Stop
	return nil
}

// withdrawStop lets an attempt go on. The fact goes first: after a crash in between it is published again, with the same key.
func (e *executor) withdrawStop(ctx context.Context, action diff.Action, a train.Attempt) error {
	if err := e.publish(ctx, withdrawnFact(a, action.Generation)); err != nil {
		return err
	}
	if action.Cause == train.StopRetune {
		a.Stays = e.picture.wish(a.Job).Generation
	}
	a.Stop, a.StopSince = train.StopNone, time.Time{}
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	delete(e.stopTold, diff.ReportKey{Job: a.Job, Number: a.Number})
	e.log.Info("attempt goes on after all", "job", a.Job, "attempt", a.Number, "generation", action.Generation)
	return nil
}

// claimsInOneTime is how many attempts are claimed at the same time. A claim waits for the disk of the bus, and on Kubernetes for that of the API server, too.
const claimsInOneTime = 16

// applyStarts claims attempts and has the processes of each started as soon as it is claimed, while others are still being claimed. Whoever sees a claim without
// processes starts them, so nothing is lost in between.
func (e *executor) applyStarts(ctx context.Context, starts []diff.Action) {
	claimed, errs, done := make([]train.Attempt, len(starts)), make([]error, len(starts)), make(chan int, len(starts))
	var claims conc.WaitGroup
	claims.Go(func() {
		defer close(done)
		group := pool.New().WithMaxGoroutines(claimsInOneTime)
		for i, action := range starts {
			group.Go(func() {
				claimed[i], errs[i] = e.claim(ctx, action)
				done <- i
			})
		}
		group.Wait()
	})
	for i := range done {
		a := claimed[i]
		e.postponed(ctx, starts[i].Job, errs[i])
		if a.Job == "" {
			continue
		}
		e.claimedAt[diff.ReportKey{Job: a.Job, Number: a.Number}] = time.Now()
		e.metrics.starts.Inc()
		_, err := e.launchInTime(ctx, a, launch.Sight{})
		e.postponed(ctx, a.Job, err)
	}
	claims.Wait()
}

// claim stores that the next attempt of a job is taken. Nothing is claimed where the record has changed since the decision.
func (e *executor) claim(ctx context.Context, action diff.Action) (train.Attempt, error) {
	last, _ := e.picture.attempt(action.Job)
	if last.Number != action.Number-1 {
		return train.Attempt{}, nil
	}
	job, _ := e.picture.job(action.Job)
	a := train.Attempt{
		Job: action.Job, Number: action.Number, Backend: e.realm.Backend, LogFormat: job.Spec.LogFormat, Generation: action.Generation, Phase: train.PhaseClaimed,
		StartedEpochs: action.StartedEpochs, LostInARow: action.LostInARow, UnstartedInARow: action.UnstartedInARow,
		Servers: action.Servers, Setting: e.picture.wish(action.Job),
	}
	if denied(last, a.Setting) {
		a.Setting, a.Stays = a.Setting.Without(train.SettingCores, train.SettingMemoryMiB), a.Setting.Generation
	}
	a.SetPlaces(action.Places)
	places, err := e.picture.places(a)
	if err != nil {
		return train.Attempt{}, fmt.Errorf("start %s: %w", action.Job, err)
	}
	a.Enforcement = train.Weakest(launch.Setting{Places: places}.Devices())
	capability, token, err := e.backend.MakeSecrets(ctx, action.Job, action.Number)
	if err != nil {
		return train.Attempt{}, fmt.Errorf("start %s: %w", action.Job, err)
	}
	a.CapabilityHash, a.TokenHash = hash(capability), hash(token)
	if err := e.swap(ctx, a); err != nil {
		return train.Attempt{}, fmt.Errorf("claim attempt %d of %s: %w", a.Number, a.Job, err)
	}
	return a, nil
}

// denied says that attempts may not be made with the processors and the memory of a setting: the last one could not be, or was made without them for that.
func denied(last train.Attempt, wish train.Setting) bool {
	forbidden := last.Exit != nil && last.Exit.Reason.Code == launch.Forbidden || last.Stays == wish.Generation
	return wish.Generation > 0 && last.Setting.Generation == wish.Generation && forbidden
}

// launches counts the tries to start the processes of an attempt since one of them was last seen to have come.
type launches struct {
	tries   int
	present int
	next    time.Time
}

// launchInTime starts the processes of a claimed attempt unless they are being started. What came to nothing is tried again later each time. again is after how
// long to look again.
func (e *executor) launchInTime(ctx context.Context, a train.Attempt, s launch.Sight) (again time.Duration, err error) {
	starting, why := e.backend.Starting(a.Job, a.Number)
	if starting {
		return s.Again, nil
	}
	key, now := diff.ReportKey{Job: a.Job, Number: a.Number}, time.Now()
	l := e.launches[key]
	if s.Present > l.present {
		l = launches{present: s.Present}
	}
	if now.Before(l.next) {
		return l.next.Sub(now), nil
	}
	if l.tries > 0 && why != nil {
		e.report(ctx, "attempt is started again", a.Job, fmt.Errorf("attempt %d: %w", a.Number, why))
	}
	l.tries++
	again = diff.RetryDelay(l.tries)
	l.next = now.Add(again)
	e.launches[key] = l
	if s.Again > 0 {
		again = min(again, s.Again)
	}
	return again, e.launch(ctx, a)
}

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// launch starts the processes of a claimed attempt. What can never work is recorded as its end; any other trouble is tried again.
func (e *executor) launch(ctx context.Context, a train.Attempt) error {
	job, known := e.picture.job(a.Job)
	if !known {
		return fmt.Errorf("start %s: the register has no such job: %w", a.Job, bus.ErrNotFound)
	}
	places, err := e.picture.places(a)
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	capability, token, err := e.backend.ReadSecrets(ctx, a.Job, a.Number)
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	if hash(token) != a.TokenHash || hash(capability) != a.CapabilityHash {
		// It was claimed over other secrets, or these were removed since: whether it ran is not known.
		return e.backend.Refuse(ctx, a, train.Exit{Lost: true})
	}
	err = e.backend.Start(ctx, launch.Setting{
		Job: a.Job, Spec: launch.Tuned(job.Spec, a), Attempt: a, Places: places, Capability: capability, Token: token, Restarted: e.picture.restarts(a),
		HeartbeatSteps: e.settings.heartbeatSteps, Base: os.Environ(), PythonPath: e.settings.pythonPath,
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Job, err)
	}
	return nil
}

// kill records why, then has the processes ended.
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

// decide records what an exit means. The report is read anew: the agent stores that it told the code to stop before it does so.
func (e *executor) decide(ctx context.Context, a train.Attempt) error {
	report, job, err := e.known(ctx, a)
	if err != nil {
		return err
	}
	verdict := diff.Judge(a, report, job)
	a.Outcome, a.NotBefore = verdict.Outcome, time.Time{}
	if verdict.Outcome == train.OutcomeRecovering {
		a.NotBefore = time.Now().UTC().Add(verdict.Retry)
	}
	return e.swap(ctx, a)
}

// known reads what is told of an attempt and of its job.
func (e *executor) known(ctx context.Context, a train.Attempt) (train.AttemptReport, train.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	report, err := e.reports.Get(ctx, fmt.Sprintf("%s.%d", a.Job, a.Number))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return report.Value, train.Job{}, err
	}
	if job, found := e.picture.job(a.Job); found {
		return report.Value, job, nil
	}
	entry, err := e.jobs.Get(ctx, string(a.Job))
	if errors.Is(err, bus.ErrNotFound) {
		err = nil // the register lost it: what is known of the attempt is enough
	}
	return report.Value, entry.Value, err
}

// tell publishes a recorded outcome, records that it did, and forgets the attempt's files.
func (e *executor) tell(ctx context.Context, a train.Attempt) error {
	report, job, err := e.known(ctx, a)
	if err != nil {
		return err
	}
	verdict := diff.Details(a, report, job)
	if err := e.publish(ctx, endFact(a, report, verdict, e.needs(a, report))); err != nil {
		return err
	}
	a.Told = true
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	e.metrics.outcomes.WithLabelValues(string(a.Outcome)).Inc()
	e.log.Info("attempt ended", "job", a.Job, "attempt", a.Number, "outcome", a.Outcome, "epochs_done", verdict.EpochsDone)
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	delete(e.claimedAt, key)
	delete(e.stopTold, key)
	delete(e.launches, key)
	delete(e.retunings, key)
	e.picture.over(key)
	return e.backend.Forget(ctx, a)
}

// needs is how much of each device an attempt is to have after one that was held to its part has run out of it: half as much again, as far as there is. What it would
// have used nobody has seen. It is 0 for all others.
func (e *executor) needs(a train.Attempt, r train.AttemptReport) unit.Bytes {
	if a.Memory == 0 || r.Enlarged || a.Enforcement != train.EnforcedByMPS || a.Exit == nil || !a.Exit.OutOfDeviceMemory() {
		return 0
	}
	places, err := e.picture.places(a)
	if err != nil {
		return 0 // the node has gone
	}
	needs := a.Memory + a.Memory/2
	for _, d := range (launch.Setting{Places: places}).Devices() {
		needs = min(needs, d.Memory)
	}
	return needs
}

// cancel records the end of a job without processes. A job that was never tried gets a record for it, so that no start can come in between.
func (e *executor) cancel(ctx context.Context, action diff.Action, a train.Attempt) error {
	if a.Job == "" {
		a = train.Attempt{Job: action.Job, Node: e.realm.Node, Backend: e.realm.Backend, Phase: train.PhaseExited}
	}
	a.Outcome, a.Told = train.OutcomeCancelled, false
	return e.swap(ctx, a)
}
