package executor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// executor is one run of the service. Only its loop writes records.
type executor struct {
	*shared
	backend backend
	realm   diff.Realm
	limits  diff.Limits
	// acts reports whether this executor is the one that acts for its realm.
	acts func() bool

	starts *starter
	tuning *retuner
	strays *straySweeper
	// stopPublished is the cause for which it was last published that an attempt was asked to leave.
	stopPublished map[diff.ReportKey]train.StopCause
	// handingOver is how long ends wait until the agent has taken what the code left for it.
	handingOver map[diff.ReportKey]diff.Wait
	// deciding is how long the meaning of exits waits for what the agent has not stored yet.
	deciding map[diff.ReportKey]diff.Wait
}

func newExecutor(s *shared, on platform, config settings.Executor) *executor {
	return &executor{
		shared: s, backend: on.backend, realm: on.realm, limits: diff.Limits{StopGrace: config.StopGrace, MostGrace: config.StopGraceMax}, acts: on.acts,
		starts: newStarter(s, on.backend, on.realm, config), tuning: newRetuner(s, on.backend),
		strays: &straySweeper{shared: s, backend: on.backend, realm: on.realm}, stopPublished: map[diff.ReportKey]train.StopCause{},
		handingOver: map[diff.ReportKey]diff.Wait{}, deciding: map[diff.ReportKey]diff.Wait{},
	}
}

// loop compares and acts on every change, until ctx ends. It calls started after the first comparison.
func (e *executor) loop(ctx context.Context, started func()) error {
	for first := true; ctx.Err() == nil; {
		pause := launch.Later
		if e.cache.synced.ready() && e.acts() {
			pause = e.pass(ctx)
			if first {
				started()
				first = false
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-e.cache.queue.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// pass looks at the queued jobs, does what is to be done, and returns when to look again.
func (e *executor) pass(ctx context.Context) time.Duration {
	if e.bus.Ready() != nil || e.backend.Ready() != nil {
		return launch.Later // what happens meanwhile is on disk
	}
	now := time.Now()
	e.strays.sweep(ctx, now) // before anything starts: what runs without a record may hold its devices
	jobs := e.cache.take(now)
	for _, a := range e.cache.liveAttempts(jobs) {
		if _, known := e.cache.job(a.Job); !known {
			e.faults.warn(ctx, "attempt is left alone", a.Job, errNoJob)
		}
		again, err := e.observe(ctx, a)
		if err != nil {
			e.faults.warn(ctx, "attempt not observed", a.Job, err)
			again = launch.Later
		}
		if again > 0 {
			e.cache.queue.addAt(a.Job, now.Add(again))
		}
	}
	e.deleteExpired(ctx, jobs, now)
	e.act(ctx, e.cache.actions(jobs, now, e.limits, e.tuning.reasons))
	e.metrics.running.Set(float64(e.cache.running()))
	if soonest := e.cache.queue.next(); !soonest.IsZero() {
		return min(launch.Later, max(time.Until(soonest), launch.Soon))
	}
	return launch.Later
}

// errNoJob says that a record is missing that admission makes again from the facts of its job.
var errNoJob = errors.New("the register has no record of its job: see `switchyard repair`")

// act does what is to be done, the starts last.
func (e *executor) act(ctx context.Context, actions []diff.Action) {
	first := slices.IndexFunc(actions, func(a diff.Action) bool { return a.Kind == diff.Start })
	if first < 0 {
		first = len(actions)
	}
	for _, action := range actions[:first] {
		e.retry(ctx, action.Job, e.apply(ctx, action))
		if action.Kind == diff.Kill {
			e.cache.queue.addAt(action.Job, time.Now().Add(launch.Later)) // until the exit is seen
		}
	}
	starts := actions[first:]
	if len(starts) > startsPerPass {
		e.cache.queue.postpone(starts[startsPerPass:])
		starts = starts[:startsPerPass]
	}
	e.starts.startAll(ctx, starts)
}

// deleteExpired deletes records that are no longer needed. The job's own record stays in the register, so it is never
// started again.
func (e *executor) deleteExpired(ctx context.Context, jobs []train.JobID, now time.Time) {
	for _, entry := range e.cache.expired(jobs, now) {
		err := e.backend.ForgetAll(ctx, entry.Value.Job)
		if err == nil {
			err = e.buckets.attempts.Delete(ctx, entry.Key, entry.Revision)
		}
		if !errors.Is(err, bus.ErrConflict) { // a deletion without an answer has happened
			e.retry(ctx, entry.Value.Job, err)
		}
	}
}

// observe compares the record of a live attempt with the machine. again is the delay before the next look, 0 if every
// change is an event.
func (e *executor) observe(ctx context.Context, a train.Attempt) (again time.Duration, err error) {
	if reason, asked := stopReasons()[a.Stop]; asked {
		if err := e.publishStop(ctx, a, reason); err != nil {
			return 0, err
		}
	}
	status, err := e.backend.Status(ctx, a)
	if err != nil {
		return 0, err
	}
	switch status.Phase {
	case launch.Absent:
		return e.absent(ctx, a, status)
	case launch.Starting:
		return status.Again, nil
	case launch.Running:
		return e.running(ctx, a, status)
	case launch.Ending:
		return status.Again, e.ending(ctx, a, status)
	case launch.Exited:
		return e.exited(ctx, a, status)
	case launch.Lost:
		return e.lose(ctx, a)
	}
	return 0, nil
}

// stopReasons are the reasons to publish for a stop whose own reason was lost with the executor that decided it.
func stopReasons() map[train.StopCause]train.Reason {
	replanned := train.Reason{Code: "Replanned", Message: "a newer plan gives its devices to another job"}
	return map[train.StopCause]train.Reason{
		train.StopPreempt:   replanned,
		train.StopRescale:   replanned,
		train.StopConverged: {Code: "Converged", Message: "its loss has converged"},
		train.StopOverspent: {Code: "TooExpensive", Message: "it has cost more than its limit, which is set from the cheapest job of its group"},
		train.StopTimeLimit: {Code: "TimeLimit", Message: "it has run for as long as it may"},
		train.StopWanted:    {Code: "Wanted", Message: "it is to be paused, or put at the end of the queue"},
		train.StopRetune:    {Code: retuneCode, Message: "it is started with other system parameters"},
	}
}

// absent starts a claimed attempt without processes; any other attempt without processes is lost.
func (e *executor) absent(ctx context.Context, a train.Attempt, s launch.Status) (again time.Duration, err error) {
	switch {
	case a.Phase != train.PhaseClaimed:
		return e.lose(ctx, a)
	case a.Stop == train.StopCancel || a.Ending != nil:
		return 0, nil // it is about to be ended
	case s.Staging != nil && (a.Staging == nil || *a.Staging != *s.Staging):
		a.Staging = s.Staging
		if err := e.swap(ctx, a); err != nil {
			return 0, err
		}
	}
	return e.starts.launchWithBackoff(ctx, a, s)
}

// running records that an attempt runs, follows it, and tunes it.
func (e *executor) running(ctx context.Context, a train.Attempt, s launch.Status) (again time.Duration, err error) {
	if a.Phase == train.PhaseClaimed {
		if err := e.started(ctx, a, s); err != nil {
			return 0, err
		}
	}
	e.backend.Follow(ctx, a, s, func() { e.cache.queue.add(a.Job) })
	again, err = e.tuning.retune(ctx, a, s)
	if again == 0 || s.Again > 0 && s.Again < again {
		again = s.Again
	}
	return again, err
}

// ending records why the rest of an attempt has to end, before it is ended.
func (e *executor) ending(ctx context.Context, a train.Attempt, s launch.Status) error {
	if a.Ending != nil {
		return nil
	}
	exit := s.Exit
	a.Ending = &exit
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	e.log.Info("ending the rest of an attempt", "job", a.Job, "attempt", a.Number, "code", exit.Code, "signal", exit.Signal,
		"reason", exit.Reason.Code, "message", exit.Reason.Message)
	return nil
}

// started records that the processes were started. The facts come first: after a crash in between they are published
// again, with the same keys. So the setting of an attempt is published even if the attempt ends before an executor
// looks at it again.
func (e *executor) started(ctx context.Context, a train.Attempt, s launch.Status) error {
	a.Phase, a.PID, a.PIDStart, a.BootID, a.StartedAt = train.PhaseRunning, s.PID, s.PIDStart, s.BootID, s.StartedAt
	if s.Staging != nil {
		a.Staging = s.Staging
	}
	job, _ := e.cache.job(a.Job)
	if err := e.publish(ctx, startedFact(a, job.Spec, e.backend.Mounts(job.Spec))); err != nil {
		return err
	}
	if _, err := e.tuning.retune(ctx, a, s); err != nil {
		return err
	}
	if err := e.swap(ctx, a); err != nil {
		return err
	}
	e.starts.observeLatency(a)
	e.log.Info("attempt started", "job", a.Job, "attempt", a.Number, "devices", train.JoinPlaces(a.Places()), "pid", a.PID)
	return nil
}

// exited records an exit that the supervisor recorded.
func (e *executor) exited(ctx context.Context, a train.Attempt, s launch.Status) (again time.Duration, err error) {
	if a.Phase == train.PhaseClaimed && !s.StartedAt.IsZero() {
		// It ended before this executor first looked, but it was running.
		if err := e.started(ctx, a, s); err != nil {
			return 0, err
		}
		a, _ = e.cache.attempt(a.Job)
	}
	if again, err := e.handOver(ctx, &a); again > 0 || err != nil {
		return again, err
	}
	exit := s.Exit
	a.Phase, a.Exit, a.ExitedAt = train.PhaseExited, &exit, s.ExitedAt
	if err := e.swap(ctx, a); err != nil {
		return 0, err
	}
	e.log.Info("attempt exited", "job", a.Job, "attempt", a.Number, "code", exit.Code, "signal", exit.Signal, "forced", exit.Forced, "message", exit.Message)
	return 0, nil
}

// lose records that an attempt vanished, once nothing of it is left on the machine.
func (e *executor) lose(ctx context.Context, a train.Attempt) (again time.Duration, err error) {
	left, err := e.backend.Sweep(ctx, a)
	if err != nil || left > 0 {
		return launch.Soon, err
	}
	if again, err := e.handOver(ctx, &a); again > 0 || err != nil {
		return again, err
	}
	e.metrics.losses.Inc()
	a.Phase, a.Exit, a.ExitedAt = train.PhaseExited, &train.Exit{Lost: true}, time.Now().UTC()
	if err := e.swap(ctx, a); err != nil {
		return 0, err
	}
	e.log.Warn("attempt lost", "job", a.Job, "attempt", a.Number)
	return 0, nil
}
