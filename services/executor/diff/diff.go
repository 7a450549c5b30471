// Package diff decides what an executor does next: it compares the newest plan with the observed attempts and returns
// the actions that lead from one to the other. It does not decide who gets which device, and it does no I/O.
//
// Whatever plans come in, the following holds. A device is held from the claim of an attempt until the exit of the
// attempt was seen. It is given to one attempt at a time, or to several that share its memory and together use no
// more of it than there is. Attempt n+1 of a job is claimed only after the exit of attempt n was seen and its outcome
// published. A job that has ended is never started again, unless people resume it.
package diff

import (
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Kind is the kind of an action.
type Kind string

// The kinds of action.
const (
	// Start claims the next attempt of a job and starts its processes.
	Start Kind = "start"
	// RequestStop asks an attempt to leave at the end of its epoch. If the attempt was asked before, it changes the
	// cause.
	RequestStop Kind = "request_stop"
	// WithdrawStop takes back a stop request that the agent has not passed on to the attempt yet.
	WithdrawStop Kind = "withdraw_stop"
	// Kill ends the processes of an attempt now; Cause says why. It is repeated until the exit is seen.
	Kill Kind = "kill"
	// Decide records what the exit of an attempt means.
	Decide Kind = "decide"
	// Publish publishes a recorded outcome.
	Publish Kind = "publish"
	// Rebatch changes the batch of an attempt that keeps its devices.
	Rebatch Kind = "rebatch"
	// Cancel records the cancellation of a job that has no live attempt.
	Cancel Kind = "cancel"
)

// Action is one thing to do. Every action may be repeated without harm.
type Action struct {
	Kind   Kind
	Job    train.JobID
	Number int
	// Generation is the generation of the plan that a Start, a WithdrawStop or a Rebatch follows.
	Generation uint64
	// Places and the fields up to UnstartedInARow belong to a Start. Places are the devices to take, in the order of
	// ranks.
	Places []train.Part
	// Servers are the parameter servers to start beside them.
	Servers []train.ServerPart
	// Batch belongs to a Start or a Rebatch.
	Batch         train.Batch
	StartedEpochs int
	StartedStep   int
	// CountsCheckpoints is set if the job says which epochs its checkpoints hold.
	CountsCheckpoints bool
	LostInARow        int
	Retries           int
	UnstartedInARow   int
	// Cause and Reason belong to a RequestStop or a Kill. A WithdrawStop has a Cause if the attempt did not leave in
	// time and therefore goes on.
	Cause  train.StopCause
	Reason train.Reason
	// Verdict belongs to a Decide.
	Verdict Verdict
}

// Realm describes the attempts that an executor is responsible for: those of one machine, or all that run as pods.
type Realm struct {
	train.Realm
	// Nodes are the nodes of the realm, on which attempts may be started.
	Nodes map[train.NodeID]train.Node
}

// Owns reports whether this executor is responsible for an attempt, even if the attempt's node is no longer
// described.
func (r Realm) Owns(a train.Attempt) bool { return a.Realm() == r.Realm }

// reaches reports whether this executor can start on all nodes of an allocation.
func (r Realm) reaches(w train.Allocation) bool {
	for _, p := range w.Places() {
		if _, here := r.Nodes[p.Node]; !here || len(p.Devices) == 0 {
			return false
		}
	}
	return true
}

// State is everything the decision depends on. What is done about one job depends on other jobs only through the
// devices that they hold. So jobs, attempts and the allocations of the plan may be restricted to a few jobs; the
// actions then cover these jobs.
type State struct {
	Now   time.Time
	Realm Realm
	// Plan is the newest accepted plan. Planned is false until one is known; until then no plan starts or stops
	// anything.
	Plan    train.Plan
	Planned bool
	Jobs    map[train.JobID]train.Job
	// Attempts has the newest attempt of each job, on all nodes. Reports has what training code reported about
	// attempts.
	Attempts map[train.JobID]train.Attempt
	Reports  map[ReportKey]train.AttemptReport
	// Held are the devices that live attempts of all jobs hold.
	Held train.Occupancy
	// Retunes says for live attempts whether the wanted system parameters need a restart, and why. A reason without a
	// code means no restart is needed; for an attempt that is missing it is not known yet.
	Retunes map[ReportKey]train.Reason
	// StopSeen is when this executor first saw that an attempt was asked to leave. The grace period counts from then
	// and not from the time in the record, because the machine's clock may have been set since.
	StopSeen map[ReportKey]time.Time
	// ExitSeen is when this executor first saw that an attempt without an outcome had exited. The wait for late
	// reports counts from then: the exit may have happened long before this executor started, and its time may come
	// from another machine's clock.
	ExitSeen map[ReportKey]time.Time

	// StepsSeen has the newest steps of live attempts, with At the time when this executor first saw them: neither another
	// machine's clock nor a pause of this one counts as silence.
	StepsSeen map[ReportKey]train.Steps

	wanted map[train.JobID]train.Allocation
}

// ReportKey identifies the report of an attempt.
type ReportKey struct {
	Job    train.JobID
	Number int
}

// report returns what the code of an attempt has reported.
func (s State) report(a train.Attempt) train.AttemptReport {
	return a.Unreported.In(s.Reports[ReportKey{a.Job, a.Number}])
}

// asked returns how long ago an attempt was asked to leave.
func (s State) asked(a train.Attempt) time.Duration {
	return s.seenFor(s.StopSeen, a)
}

// seenFor returns how long ago something was first seen of an attempt, and 0 if it was not seen before.
func (s State) seenFor(seen map[ReportKey]time.Time, a train.Attempt) time.Duration {
	first, known := seen[ReportKey{a.Job, a.Number}]
	if !known {
		return 0
	}
	return s.Now.Sub(first)
}

// Restarts reports whether an attempt resumes from saved state: a finished epoch, or a checkpoint of an earlier
// attempt or of the job that this one continues. Code that is started with JOB_RESTARTED loads its checkpoint and would
// fail without one.
func Restarts(s State, a train.Attempt) bool {
	job := s.Jobs[a.Job]
	if a.FromScratch || a.Number == 1 && job.Spec.Continue == "" {
		return false
	}
	for n := 1; n < a.Number; n++ {
		if s.Reports[ReportKey{a.Job, n}].Checkpoint != "" {
			return true
		}
	}
	return a.StartedEpochs > 0 || a.StartedStep > 0 || job.Checkpoint != ""
}

// Limits bound how long things may take.
type Limits struct {
	// StopGrace is how long an attempt may take to leave after it was asked to, if it can save its state at once.
	// MostGrace bounds how long it may take until it can.
	StopGrace, MostGrace time.Duration
}

// Actions returns what to do now, in order: ends before starts, jobs by id, starts in the order of the plan. An attempt
// whose job has no record is left alone.
func Actions(s State, l Limits) []Action {
	s.wanted = make(map[train.JobID]train.Allocation, len(s.Plan.Allocations))
	for _, w := range slices.Backward(s.Plan.Allocations) { // if a job is listed twice, the first allocation counts
		s.wanted[w.Job] = w
	}
	var actions []Action
	for _, id := range slices.Sorted(maps.Keys(s.Attempts)) {
		a := s.Attempts[id]
		if _, known := s.Jobs[id]; !known || !s.Realm.Owns(a) {
			continue // only the record of its job says what people want
		}
		if action, ok := forAttempt(s, l, a); ok {
			actions = append(actions, action)
		}
	}
	actions = append(actions, cancels(s)...)
	return append(actions, starts(s)...)
}

func forAttempt(s State, l Limits, a train.Attempt) (Action, bool) {
	switch {
	case a.Live():
		return forLive(s, l, a)
	case a.Outcome == train.OutcomeNone:
		if untilSettled(a, s) > 0 {
			return Action{}, false
		}
		return Action{Kind: Decide, Job: a.Job, Number: a.Number, Verdict: Judge(a, s.report(a), s.Jobs[a.Job])}, true
	case !a.Published:
		return Action{Kind: Publish, Job: a.Job, Number: a.Number}, true
	}
	return Action{}, false
}

// cancels ends cancelled jobs that have no process.
func cancels(s State) []Action {
	var actions []Action
	for _, id := range slices.Sorted(maps.Keys(s.Jobs)) {
		job := s.Jobs[id]
		if !job.CancelRequested || job.State.Terminal() || job.Spec.Array != "" {
			continue
		}
		a, tried := s.Attempts[id]
		if tried && (!s.Realm.Owns(a) || !ended(a) || a.Ends(job)) {
			continue
		}
		actions = append(actions, Action{Kind: Cancel, Job: id, Number: a.Number})
	}
	return actions
}

// ended reports whether nothing more is to be done for the attempt itself.
func ended(a train.Attempt) bool {
	return a.Phase == train.PhaseExited && a.Outcome != train.OutcomeNone && a.Published
}

// starts starts jobs whose planned devices are free.
func starts(s State) []Action {
	if !s.Planned {
		return nil
	}
	var actions []Action
	taken := train.Occupancy{}
	seen := map[train.JobID]bool{}
	for _, w := range s.Plan.Allocations {
		places := w.Places()
		if seen[w.Job] || !s.Realm.reaches(w) || !mayStart(s, w) || !s.Realm.free(places, s.Held, taken) {
			continue
		}
		seen[w.Job] = true
		taken.Take(places)
		actions = append(actions, start(s, w))
	}
	return actions
}

// mayStart reports whether the job itself is ready for its next attempt. Plans of older versions left the number of
// parameter servers open: such a job starts with the next plan.
func mayStart(s State, w train.Allocation) bool {
	id := w.Job
	job, known := s.Jobs[id]
	if job.Spec.Strategy == train.StrategyParameterServer && w.ServerCount() == 0 {
		return false
	}
	if !known || job.State.Terminal() || job.Wants() != train.WantRun || job.State == train.StateNone || job.State == train.StateSubmitted {
		return false
	}
	a, tried := s.Attempts[id]
	return !tried || ended(a) && !a.Ends(job) && untilDue(s, a) <= 0
}

// untilDue returns how long the next attempt has to wait. A time further off than the longest delay comes from a
// wrong clock and is ignored.
func untilDue(s State, a train.Attempt) time.Duration {
	wait := a.NotBefore.Sub(s.Now)
	if wait > longestRetry {
		return 0
	}
	return wait
}

func start(s State, w train.Allocation) Action {
	job, last := s.Jobs[w.Job], s.Attempts[w.Job]
	report := s.report(last)
	epochs, step := report.Resumes(last)
	counts := report.CountsCheckpoints(last)
	if job.EpochsDone > epochs && !counts {
		epochs, step = job.EpochsDone, 0
	}
	if last.Job == "" {
		step = job.EpochStep // the record of its last attempt was deleted, long after its end
	}
	if last.Resumed != job.Resumed {
		last.Outcome, last.LostInARow, last.Retries, last.Exit = train.OutcomeNone, 0, 0, nil
	}
	return Action{
		Kind: Start, Job: w.Job, Number: max(last.Number, job.Attempt) + 1, Places: slices.Clone(w.Places()), Servers: w.Servers, Generation: s.Plan.Generation,
		Batch:             job.Spec.BatchIn(w),
		StartedEpochs:     epochs,
		StartedStep:       step,
		CountsCheckpoints: counts,
		LostInARow:        lostBeforeNext(last, report),
		Retries:           retriesBeforeNext(last),
		UnstartedInARow:   unstartedBeforeNext(last),
	}
}

// reportWait is how long an exit is not judged because reports of the training code may still arrive.
const reportWait = 10 * time.Second

// outputWait is how long an exit is not judged because the agent of its node may still read the output of its pods.
// (A supervisor reads all output before it records an exit.)
const outputWait = 30 * time.Second

// untilSettled returns how long the exit of a must not be judged yet. While the bus is unreachable the node agent
// keeps the reports of training code. A job that ended meanwhile must not be taken for one that stopped early only
// because its last epochs arrive a moment later.
func untilSettled(a train.Attempt, s State) time.Duration {
	r, job := s.report(a), s.Jobs[a.Job]
	waited := s.seenFor(s.ExitSeen, a)
	if a.Backend == train.BackendKubernetes && a.LogFormat != "" {
		if r.OutputRead || a.StartedAt.IsZero() {
			return 0
		}
		return outputWait - waited
	}
	clean := a.Exit != nil && a.Exit.Code == 0 && a.Exit.Signal == "" && !a.Exit.Lost && !a.Exit.Forced
	silent := !r.Spoke && job.Spec.LogFormat == "" // output that is read does not count as a call
	if !clean || silent || r.StopAnswered || r.Ended != "" || r.EpochsDone >= job.Spec.MaxEpochs {
		return 0
	}
	return reportWait - waited
}

// Due returns when the clock alone makes something due for a job.
func Due(s State, l Limits) map[train.JobID]time.Time {
	due := map[train.JobID]time.Time{}
	for id, a := range s.Attempts {
		switch {
		case ended(a) && untilDue(s, a) > 0: // the next attempt may be on another machine than this one
			due[id] = s.Now.Add(untilDue(s, a))
		case !s.Realm.Owns(a):
		case a.Live():
			if wait, waits := untilEnded(s, l, a); waits {
				due[id] = s.Now.Add(wait)
			}
		case !a.Live() && a.Outcome == train.OutcomeNone && untilSettled(a, s) > 0:
			due[id] = s.Now.Add(untilSettled(a, s))
		case !a.Live() && untilDue(s, a) > 0:
			due[id] = s.Now.Add(untilDue(s, a))
		}
	}
	return due
}

// untilEnded returns how long a live attempt may go on: to the end of its grace period or the time limit of its job.
func untilEnded(s State, l Limits, a train.Attempt) (time.Duration, bool) {
	left, limited := s.Jobs[a.Job].LimitLeft(a, s.Now)
	limited = limited && left > 0 && !a.StartedAt.IsZero()
	if a.Stop == train.StopNone {
		silent, known := s.StepsSeen[ReportKey{a.Job, a.Number}].SilentAt()
		if known && s.Jobs[a.Job].Spec.RestartSilent && (!limited || silent.Sub(s.Now) < left) {
			return silent.Sub(s.Now), true
		}
		return left, limited
	}
	grace := Grace(a, s.report(a), s.Jobs[a.Job], l) - s.asked(a)
	if limited {
		grace = min(grace, left)
	}
	return grace, true
}
