// Package diff decides what an executor does next: it compares the newest plan with the attempts that were observed and gives the actions that lead
// from one to the other. It decides nothing about who gets which device, and it does nothing itself.
//
// What always holds, whatever plans come in: a device is held from the claim of an attempt until its exit was seen, and is given to one attempt at a
// time, or to several that share its memory and together have no more of it than there is; attempt n+1 of a job is claimed only after the exit of attempt n was seen and told; a job that has ended is never started again.
package diff

import (
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Kind of an action.
type Kind string

// The kinds of action.
const (
	// Start claims the next attempt of a job and starts its processes.
	Start Kind = "start"
	// RequestStop asks an attempt to leave at its next epoch's end. One that was asked before is from then on asked for another cause.
	RequestStop Kind = "request_stop"
	// WithdrawStop lets an attempt go on that was asked to leave and has not been told so yet.
	WithdrawStop Kind = "withdraw_stop"
	// Kill ends the processes of an attempt now; Cause says why. It is repeated until the exit is seen.
	Kill Kind = "kill"
	// Decide records what the exit of an attempt means.
	Decide Kind = "decide"
	// Tell publishes a recorded outcome.
	Tell Kind = "tell"
	// Cancel records the cancellation of a job that has no live attempt.
	Cancel Kind = "cancel"
)

// Action is one thing to do. Every action may be done again without harm.
type Action struct {
	Kind   Kind
	Job    train.JobID
	Number int
	// Generation is that of the plan that is followed by a Start or a WithdrawStop.
	Generation uint64
	// What follows is of a Start. Places are the devices that it takes, in the order of ranks.
	Places []train.Part
	// Servers is the number of its parameter servers.
	Servers         int
	StartedEpochs   int
	LostInARow      int
	UnstartedInARow int
	// Cause and Reason are of a RequestStop or a Kill. A WithdrawStop has a Cause where the attempt did not leave in time and goes on for that.
	Cause  train.StopCause
	Reason train.Reason
	// Verdict is of a Decide.
	Verdict Verdict
}

// Realm says which attempts an executor looks after: those of one machine, or all that run as pods.
type Realm struct {
	Backend train.Backend
	// Node is the machine of a local executor.
	Node train.NodeID
	// Nodes are those on which attempts may be started.
	Nodes map[train.NodeID]train.Node
}

// Owns says whether an attempt is looked after here, also where its node is not described any more.
func (r Realm) Owns(a train.Attempt) bool {
	return a.Backend == r.Backend && (r.Backend != train.BackendLocal || a.Node == r.Node && len(a.Parts) == 0)
}

// reaches says whether all nodes of an allocation are here. A gang over several nodes is nothing for a machine alone.
func (r Realm) reaches(w train.Allocation) bool {
	places := w.Places()
	for _, p := range places {
		if _, here := r.Nodes[p.Node]; !here || len(p.Devices) == 0 {
			return false
		}
	}
	return r.Backend != train.BackendLocal || len(places) == 1
}

// State is all that the decision depends on. What is done about a job depends on nothing of the others but the devices that they hold, so jobs, attempts and the
// plan's allocations may be those of a few jobs: then the actions are those about these few.
type State struct {
	Now   time.Time
	Realm Realm
	// Plan is the newest plan that was accepted; Planned is false while none is known, and then nothing is started or stopped for its sake.
	Plan    train.Plan
	Planned bool
	Jobs    map[train.JobID]train.Job
	// Attempts are the newest attempt of each job, also those of other nodes; Reports what training code said of them.
	Attempts map[train.JobID]train.Attempt
	Reports  map[ReportKey]train.AttemptReport
	// Held are the devices that live attempts hold, those of all jobs.
	Held Holding
	// Retunes say of live attempts whether the system parameters that are wanted of their jobs take another start, and why; a reason without a code says that they
	// do not, and of an attempt that is not among them it is not known.
	Retunes map[ReportKey]train.Reason
	// StopSeen is when this executor first saw that an attempt was asked to leave. The grace counts from then and not from the time in the record: the
	// clock of the machine may have been set since.
	StopSeen map[ReportKey]time.Time
	// ExitSeen is when this executor first saw that an attempt whose outcome is open had exited. What is still to be said of it counts from then: the exit may have
	// been long ago when the executor is back, and its time is that of another machine's clock.
	ExitSeen map[ReportKey]time.Time

	wanted map[train.JobID]train.Allocation
}

// ReportKey names the report of an attempt.
type ReportKey struct {
	Job    train.JobID
	Number int
}

// report is what is known of an attempt from its code.
func (s State) report(a train.Attempt) train.AttemptReport {
	return s.Reports[ReportKey{a.Job, a.Number}]
}

// asked is how long an attempt has been asked to leave.
func (s State) asked(a train.Attempt) time.Duration {
	return s.seenFor(s.StopSeen, a)
}

// seenFor is how long something has been seen of an attempt; what was not seen before begins now.
func (s State) seenFor(seen map[ReportKey]time.Time, a train.Attempt) time.Duration {
	first, known := seen[ReportKey{a.Job, a.Number}]
	if !known {
		return 0
	}
	return s.Now.Sub(first)
}

// Restarts says whether an attempt has a state of its job to go on from: a finished epoch, or a checkpoint of an attempt before it. Code that is told so
// loads its checkpoint, and would fail where there is none.
func Restarts(s State, a train.Attempt) bool {
	for n := 1; n < a.Number; n++ {
		if s.Reports[ReportKey{a.Job, n}].Checkpoint != "" {
			return true
		}
	}
	return a.Number > 1 && a.StartedEpochs > 0
}

// Limits bound how long things may take.
type Limits struct {
	// StopGrace is how long an attempt may take to leave after it was asked to.
	StopGrace time.Duration
}

// Actions gives what is to be done now, in order: ends before starts, jobs by id, starts in the plan's order.
func Actions(s State, l Limits) []Action {
	s.wanted = make(map[train.JobID]train.Allocation, len(s.Plan.Allocations))
	for _, w := range slices.Backward(s.Plan.Allocations) { // of a job that is listed twice the first counts
		s.wanted[w.Job] = w
	}
	var actions []Action
	for _, id := range slices.Sorted(maps.Keys(s.Attempts)) {
		a := s.Attempts[id]
		if !s.Realm.Owns(a) {
			continue
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
	case !a.Told:
		return Action{Kind: Tell, Job: a.Job, Number: a.Number}, true
	}
	return Action{}, false
}

// cancels ends jobs that were asked to end and have no process.
func cancels(s State) []Action {
	var actions []Action
	for _, id := range slices.Sorted(maps.Keys(s.Jobs)) {
		job := s.Jobs[id]
		if !job.CancelRequested || job.State.Terminal() {
			continue
		}
		a, tried := s.Attempts[id]
		if tried && (!s.Realm.Owns(a) || !ended(a) || a.Outcome.Terminal()) {
			continue
		}
		actions = append(actions, Action{Kind: Cancel, Job: id, Number: a.Number})
	}
	return actions
}

// ended says that nothing more is to be done for the attempt itself.
func ended(a train.Attempt) bool {
	return a.Phase == train.PhaseExited && a.Outcome != train.OutcomeNone && a.Told
}

// starts gives free devices to the jobs that the plan puts there.
func starts(s State) []Action {
	if !s.Planned {
		return nil
	}
	var actions []Action
	taken := Holding{}
	seen := map[train.JobID]bool{}
	for _, w := range s.Plan.Allocations {
		places := w.Places()
		if seen[w.Job] || !s.Realm.reaches(w) || !mayStart(s, w.Job) || !s.Realm.free(places, s.Held, taken) {
			continue
		}
		seen[w.Job] = true
		taken.Take(places)
		actions = append(actions, start(s, w))
	}
	return actions
}

// mayStart says whether the job itself is ready for its next attempt.
func mayStart(s State, id train.JobID) bool {
	job, known := s.Jobs[id]
	if !known || job.State.Terminal() || job.CancelRequested || job.State == train.StateNone || job.State == train.StateSubmitted {
		return false
	}
	a, tried := s.Attempts[id]
	return !tried || ended(a) && !a.Outcome.Terminal() && untilDue(s, a) <= 0
}

// untilDue is how long the next attempt has to wait. A time that is further off than any delay was written by a clock that was wrong.
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
	servers := w.ServerCount()
	if job.Spec.Strategy == train.StrategyParameterServer && servers == 0 { // the policy leaves it to the job
		servers = min(len(train.AllDevices(w.Places())), job.Spec.WithDefaults().ParameterServers.Max)
	}
	return Action{
		Kind: Start, Job: w.Job, Number: last.Number + 1, Places: slices.Clone(w.Places()), Servers: servers, Generation: s.Plan.Generation,
		StartedEpochs:   max(job.EpochsDone, last.StartedEpochs, report.EpochsDone),
		LostInARow:      lostBeforeNext(last, report),
		UnstartedInARow: unstartedBeforeNext(last),
	}
}

// settlePatience is how long an exit waits for what the training code may have said before it.
const settlePatience = 10 * time.Second

// outputPatience is how long an exit waits until the agent of its node has read the output of its pods to the end. (The supervisor of processes does so before it
// tells of their exit.)
const outputPatience = 30 * time.Second

// untilSettled is how long the exit of a is not to be judged yet. While the bus is away the node agent keeps what training code reports, and a job that has
// ended meanwhile must not be taken for one that stopped early because its last epochs are told a moment later.
func untilSettled(a train.Attempt, s State) time.Duration {
	r, job := s.report(a), s.Jobs[a.Job]
	waited := s.seenFor(s.ExitSeen, a)
	if a.Backend == train.BackendKubernetes && a.LogFormat != "" {
		if r.OutputRead || a.StartedAt.IsZero() {
			return 0
		}
		return outputPatience - waited
	}
	clean := a.Exit != nil && a.Exit.Code == 0 && a.Exit.Signal == "" && !a.Exit.Lost && !a.Exit.Forced
	silent := !r.Spoke && job.Spec.LogFormat == "" // an output that is read is no call
	if !clean || silent || r.StopAnswered || r.Ended != "" || r.EpochsDone >= job.Spec.MaxEpochs {
		return 0
	}
	return settlePatience - waited
}

// Due is when something becomes due for a job by the clock alone.
func Due(s State, l Limits) map[train.JobID]time.Time {
	due := map[train.JobID]time.Time{}
	for id, a := range s.Attempts {
		switch {
		case !s.Realm.Owns(a):
		case a.Live() && a.Stop != train.StopNone:
			due[id] = s.Now.Add(Grace(a, s.report(a), s.Jobs[a.Job], l) - s.asked(a))
		case !a.Live() && a.Outcome == train.OutcomeNone && untilSettled(a, s) > 0:
			due[id] = s.Now.Add(untilSettled(a, s))
		case !a.Live() && untilDue(s, a) > 0:
			due[id] = s.Now.Add(untilDue(s, a))
		}
	}
	return due
}
