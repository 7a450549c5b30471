package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local"
)

// executor is one run of the service. Records are written by its loop alone.
type executor struct {
	bus     *bus.Bus
	log     *slog.Logger
	realm   diff.Realm
	backend backend
	// machine is the back end of a local executor, which also answers for the logs.
	machine  *local.Machine
	fence    *fence
	metrics  *metrics
	limits   diff.Limits
	settings Service
	picture  *picture

	attempts *bus.KV[train.Attempt]
	jobs     *bus.KV[train.Job]
	nodes    *bus.KV[train.Node]
	wishes   *bus.KV[train.Setting]
	reports  *bus.KV[train.AttemptReport]

	// What follows is of the loop alone. claimedAt is when an attempt was claimed, launches the tries to start its processes; stopTold says of attempts for
	// which cause it was told last that they were asked to leave, strays the attempts without a record that are being ended, retunings how far attempts are with the system
	// parameters that are wanted, troubles what was said of faults.
	claimedAt map[diff.ReportKey]time.Time
	stopTold  map[diff.ReportKey]train.StopCause
	strays    []launch.Found
	launches  map[diff.ReportKey]launches
	retunings map[diff.ReportKey]retuning
	troubles  troubles
}

// callTime bounds an exchange with the bus.
const callTime = 5 * time.Second

// loop compares and acts on every change, until ctx ends. started is called when the first comparison has been made.
func (e *executor) loop(ctx context.Context, started func()) error {
	defer e.backend.Close()
	for first := true; ctx.Err() == nil; {
		pause := launch.Later
		if e.picture.ready() {
			pause = e.pass(ctx)
			if first {
				started()
				first = false
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-e.picture.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// pass looks at the jobs of which there is news or something is due, does what is to be done, and says when to look again.
func (e *executor) pass(ctx context.Context) time.Duration {
	e.backend.Collect()
	if e.bus.Ready() != nil || e.backend.Ready() != nil {
		return launch.Later // what happens meanwhile is on disk
	}
	now := time.Now()
	jobs := e.picture.take(now)
	for _, a := range e.picture.alive(jobs) {
		again, err := e.observe(ctx, a)
		if err != nil {
			e.report(ctx, "attempt not observed", a.Job, err)
			again = launch.Later
		}
		if again > 0 {
			e.picture.again(a.Job, now.Add(again))
		}
	}
	e.deleteExpired(ctx, jobs, now)
	e.act(ctx, e.picture.actions(jobs, now, e.limits))
	e.endStrays(ctx)
	e.metrics.running.Set(float64(e.picture.running()))
	if soonest := e.picture.soonest(); !soonest.IsZero() {
		return min(launch.Later, max(time.Until(soonest), launch.Soon))
	}
	return launch.Later
}

// act does what is to be done, the starts last.
func (e *executor) act(ctx context.Context, actions []diff.Action) {
	first := slices.IndexFunc(actions, func(a diff.Action) bool { return a.Kind == diff.Start })
	if first < 0 {
		first = len(actions)
	}
	for _, action := range actions[:first] {
		e.postponed(ctx, action.Job, e.apply(ctx, action))
		if action.Kind == diff.Kill {
			e.picture.again(action.Job, time.Now().Add(launch.Later)) // until the exit is seen
		}
	}
	starts := actions[first:]
	if len(starts) > startsInOnePass {
		e.picture.postpone(starts[startsInOnePass:])
		starts = starts[:startsInOnePass]
	}
	e.applyStarts(ctx, starts)
}

// postponed has what could not be done tried again.
func (e *executor) postponed(ctx context.Context, job train.JobID, err error) {
	if err == nil {
		return
	}
	e.report(ctx, "action postponed", job, err)
	e.picture.again(job, time.Now().Add(launch.Later))
}

func (e *executor) report(ctx context.Context, what string, job train.JobID, err error) {
	if err != nil && ctx.Err() == nil && e.troubles.news(job, err.Error(), time.Now()) {
		e.log.Warn(what, "job", job, "error", err) //nolint:sloglint // a few constant messages
	}
}

// deleteExpired deletes what nobody asks for any more. The job's own record stays in the register, so it is never started again.
func (e *executor) deleteExpired(ctx context.Context, jobs []train.JobID, now time.Time) {
	for _, entry := range e.picture.expired(jobs, now) {
		err := e.backend.ForgetAll(ctx, entry.Value.Job)
		if err == nil {
			err = e.attempts.Delete(ctx, entry.Key, entry.Revision)
		}
		if !errors.Is(err, bus.ErrConflict) { // a deletion that was not answered has happened
			e.postponed(ctx, entry.Value.Job, err)
		}
	}
}

// swap writes an attempt over the one that is known. After a conflict what is there is read, and the loop decides anew.
func (e *executor) swap(ctx context.Context, a train.Attempt) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, revision := e.picture.attempt(a.Job)
	next, err := e.attempts.Swap(ctx, string(a.Job), a, revision)
	if err == nil {
		e.picture.keep(a, next)
		return nil
	}
	// An error is not an answer: the write may have happened.
	switch there, getErr := e.attempts.Get(ctx, string(a.Job)); {
	case getErr == nil:
		e.picture.keep(there.Value, there.Revision)
	case errors.Is(getErr, bus.ErrNotFound):
		e.picture.forgetAttempt(a.Job, math.MaxUint64)
	}
	return err
}

// observe compares the record of a live attempt with the machine. again is after how long to look again, 0 where there will be news.
func (e *executor) observe(ctx context.Context, a train.Attempt) (again time.Duration, err error) {
	if a.Stop != train.StopNone && a.Stop != train.StopCancel {
		reason := train.Reason{Code: "Replanned", Message: "a newer plan has other use for its devices"}
		switch a.Stop {
		case train.StopConverged:
			reason = train.Reason{Code: "Converged", Message: "its loss has converged"}
		case train.StopOverspent:
			reason = train.Reason{Code: "TooExpensive", Message: "it has cost more than twice as much as the cheapest job of its group"}
		case train.StopRetune:
			reason = train.Reason{Code: retuneCode, Message: "it is started with other system parameters"}
		case train.StopNone, train.StopPreempt, train.StopRescale, train.StopCancel:
		}
		if err := e.tellStop(ctx, a, reason); err != nil {
			return 0, err
		}
	}
	sight, err := e.backend.Look(ctx, a)
	if err != nil {
		return 0, err
	}
	switch sight.Phase {
	case launch.Absent:
		if a.Phase == train.PhaseClaimed && (a.Stop == train.StopCancel || a.Ending != nil) {
			return 0, nil // it is about to be ended
		}
		if a.Phase == train.PhaseClaimed {
			return e.launchInTime(ctx, a, sight)
		}
		return e.lose(ctx, a)
	case launch.Starting:
		return sight.Again, nil
	case launch.Running:
		if a.Phase == train.PhaseClaimed {
			if err := e.running(ctx, a, sight); err != nil {
				return 0, err
			}
		}
		e.backend.Follow(ctx, a, sight, func() { e.picture.news(a.Job) })
		again, err := e.retune(ctx, a, sight)
		if again == 0 || sight.Again > 0 && sight.Again < again {
			again = sight.Again
		}
		return again, err
	case launch.Ending:
		return sight.Again, e.ending(ctx, a, sight)
	case launch.Exited:
		return 0, e.exited(ctx, a, sight)
	case launch.Lost:
		return e.lose(ctx, a)
	}
	return 0, nil
}

// ending records why the rest of an attempt has to end, before it is ended.
func (e *executor) ending(ctx context.Context, a train.Attempt, s launch.Sight) error {
	if a.Ending != nil {
		return nil
	}
	exit := s.Exit
	a.Ending = &exit
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	e.log.Info("the rest of an attempt is ended", "job", a.Job, "attempt", a.Number, "code", exit.Code, "signal", exit.Signal,
		"reason", exit.Reason.Code, "message", exit.Reason.Message)
	return nil
}

// running records that the processes were started. The fact goes first: after a crash in between it is published again, with the same key.
func (e *executor) running(ctx context.Context, a train.Attempt, s launch.Sight) error {
	a.Phase, a.PID, a.PIDStart, a.BootID, a.StartedAt = train.PhaseRunning, s.PID, s.PIDStart, s.BootID, s.StartedAt
	job, _ := e.picture.job(a.Job)
	if err := e.publish(ctx, startedFact(a, job.Spec, e.backend.Mounts(job.Spec))); err != nil {
		return err
	}
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	if at, known := e.claimedAt[diff.ReportKey{Job: a.Job, Number: a.Number}]; known {
		e.metrics.startLatency.Observe(s.StartedAt.Sub(at).Seconds())
	}
	e.log.Info("attempt started", "job", a.Job, "attempt", a.Number, "devices", train.JoinPlaces(a.Places()), "pid", a.PID)
	return nil
}

// exited records an exit that the supervisor wrote down.
func (e *executor) exited(ctx context.Context, a train.Attempt, s launch.Sight) error {
	if a.Phase == train.PhaseClaimed && !s.StartedAt.IsZero() {
		// It was over before anybody looked, and yet it was there.
		if err := e.running(ctx, a, s); err != nil {
			return err
		}
		a, _ = e.picture.attempt(a.Job)
	}
	exit := s.Exit
	a.Phase, a.Exit, a.ExitedAt = train.PhaseExited, &exit, s.ExitedAt
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	e.log.Info("attempt exited", "job", a.Job, "attempt", a.Number, "code", exit.Code, "signal", exit.Signal, "forced", exit.Forced, "message", exit.Message)
	return nil
}

// lose records that an attempt vanished, once nothing of it is left on the machine.
func (e *executor) lose(ctx context.Context, a train.Attempt) (again time.Duration, err error) {
	left, err := e.backend.Sweep(ctx, a)
	if err != nil || left > 0 {
		return launch.Soon, err
	}
	e.metrics.losses.Inc()
	a.Phase, a.Exit, a.ExitedAt = train.PhaseExited, &train.Exit{Lost: true}, time.Now().UTC()
	if err := e.swap(ctx, a); err != nil {
		return 0, err
	}
	e.log.Warn("attempt lost", "job", a.Job, "attempt", a.Number)
	return 0, nil
}

// endStrays ends supervisors that no record speaks of, since the record was lost with the bus, and forgets the files of attempts that were told.
func (e *executor) endStrays(ctx context.Context) {
	if e.picture.orphansDue() {
		found, err := e.backend.Find(ctx)
		e.report(ctx, "machine not searched", "", err)
		e.strays = slices.DeleteFunc(found, func(f launch.Found) bool {
			a, _ := e.picture.attempt(f.Job)
			return a.Number == f.Number && (a.Live() || !a.Told)
		})
		for _, f := range e.strays {
			if f.Phase == launch.Running || f.Phase == launch.Starting {
				e.log.Warn("ending a job that no record speaks of", "job", f.Job, "attempt", f.Number)
			}
		}
	}
	e.strays = slices.DeleteFunc(e.strays, func(f launch.Found) bool {
		stray := train.Attempt{Job: f.Job, Number: f.Number, Backend: e.realm.Backend, Node: e.realm.Node}
		sight, err := e.backend.Look(ctx, stray)
		over := sight.Phase == launch.Exited
		switch {
		case err != nil:
		case sight.Phase == launch.Lost:
			var left int
			left, err = e.backend.Sweep(ctx, stray)
			over = left == 0
		case !over:
			err = e.backend.Stop(ctx, stray, time.Now())
		}
		if err == nil && over {
			err = e.backend.Forget(ctx, stray)
		}
		e.report(ctx, "stray job not ended", f.Job, err)
		return err == nil && over
	})
}

func (e *executor) publish(ctx context.Context, f event.Fact) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := e.bus.Publish(ctx, f); err != nil {
		return fmt.Errorf("tell of %s: %w", f.Key, err)
	}
	return nil
}
