package diff

import (
	"cmp"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// forLive decides whether a live attempt has to leave, and how.
func forLive(s State, l Limits, a train.Attempt) (Action, bool) {
	action := Action{Job: a.Job, Number: a.Number}
	job := s.Jobs[a.Job]
	wish, wished := leave(a, job, s.report(a).Askable())
	switch {
	case job.CancelRequested || job.State.Terminal() || a.Stop == train.StopCancel:
		action.Kind, action.Cause = Kill, train.StopCancel
		action.Reason = train.Reason{Code: "CancelRequested", Message: "the job is cancelled or has ended"}
		return action, true
	case a.Stop == train.StopSilent || silent(s, a):
		action.Kind, action.Cause, action.Reason = Kill, train.StopSilent, silence()
		return action, true
	case a.Ending != nil:
		// All or nothing: the remaining processes wait for some that do not come back.
		action.Kind, action.Cause, action.Reason = Kill, a.Stop, a.Ending.Reason
		return action, true
	case outOfTime(s, a):
		return endInTime(s, a), true
	case wished && (wish.Kind == Kill || a.Stop == train.StopNone):
		return wish, true
	case a.Stop != train.StopNone:
		return forLeaving(s, l, a)
	}
	if cause, why := endsEarly(job); cause != train.StopNone {
		action.Kind, action.Cause, action.Reason = RequestStop, cause, why
		return action, true
	}
	if action, asked := requestStop(s, a); asked {
		return action, true
	}
	if why := s.Retunes[ReportKey{a.Job, a.Number}]; why.Code != "" {
		action.Kind, action.Cause, action.Reason = RequestStop, train.StopRetune, why
		return action, true
	}
	return rebatch(s, a)
}

// endsEarly says why a job ends before its last epoch, if it does.
func endsEarly(job train.Job) (train.StopCause, train.Reason) {
	switch {
	case job.ConvergedEpochs > 0:
		return train.StopConverged, train.Reason{Code: "Converged", Message: converged(job)}
	case job.Overspent != "":
		return train.StopOverspent, tooExpensive(job)
	}
	return train.StopNone, train.Reason{}
}

// overtime reports whether the job of a live attempt has run for as long as it may.
func overtime(s State, a train.Attempt) bool {
	left, limited := s.Jobs[a.Job].LimitLeft(a, s.Now)
	return limited && left <= 0
}

// outOfTime reports whether a live attempt is to be ended at the time limit of its job. It may be on its way out: if it
// leaves to end its job, it has its time, and so has code that was asked to save its state.
func outOfTime(s State, a train.Attempt) bool {
	asked := a.Stop == train.StopTimeLimit && s.report(a).Askable()
	return overtime(s, a) && !asked && (a.Stop == train.StopNone || a.Stop == train.StopTimeLimit || makesRoom(a.Stop))
}

// endInTime ends an attempt at the time limit of its job. Code that can be asked to leave may save its state first.
func endInTime(s State, a train.Attempt) Action {
	action := Action{Kind: RequestStop, Job: a.Job, Number: a.Number, Cause: train.StopTimeLimit, Reason: ranOut(s.Jobs[a.Job])}
	if !s.report(a).Askable() {
		action.Kind = Kill
	}
	return action
}

// leave makes an attempt leave because people want so. If it cannot be asked to, it is killed or goes on.
func leave(a train.Attempt, job train.Job, askable bool) (Action, bool) {
	action := Action{Kind: RequestStop, Job: a.Job, Number: a.Number, Cause: train.StopWanted}
	action.Reason = cmp.Or(job.Withheld(), train.Reason{Code: "Requeued", Message: "it goes to the end of the queue"})
	if !askable {
		action.Kind = Kill
	}
	return action, job.Leaves(a) && (askable || job.Wanted.Force)
}

// silent reports whether the code of an attempt has gone silent, and its user wants it restarted then.
func silent(s State, a train.Attempt) bool {
	said := train.AttemptReport{Steps: s.StepsSeen[ReportKey{a.Job, a.Number}], Ended: s.report(a).Ended}
	_, is := train.Silent(a, said, s.Now)
	return is && s.Jobs[a.Job].Spec.RestartSilent
}

// silence is why a silent attempt was ended.
func silence() train.Reason {
	return train.Reason{
		Code: train.CodeSilent, Message: "its code reported no more steps, and the job has restart_silent",
		Hint: "look in the logs for where it stood still",
	}
}

// rebatch lets an attempt that keeps its devices follow the batch of a newer plan.
func rebatch(s State, a train.Attempt) (Action, bool) {
	wanted, planned := s.wanted[a.Job]
	if !s.Planned || !planned || s.Plan.Generation <= max(a.Generation, a.BatchGeneration) {
		return Action{}, false
	}
	batch := s.Jobs[a.Job].Spec.BatchIn(wanted)
	return Action{Kind: Rebatch, Job: a.Job, Number: a.Number, Generation: s.Plan.Generation, Batch: batch}, batch != a.Batch
}

// forLeaving decides about a live attempt that was asked to leave.
func forLeaving(s State, l Limits, a train.Attempt) (Action, bool) {
	if a.Stop == train.StopRetune {
		// The plan comes first: another job needs the devices now. The grace period still counts from the first request.
		if action, asked := requestStop(s, a); asked {
			return action, true
		}
	}
	grace := Grace(a, s.report(a), s.Jobs[a.Job], l)
	if s.asked(a) < grace {
		return withdrawStop(s, a)
	}
	action := Action{Job: a.Job, Number: a.Number}
	if a.Stop == train.StopRetune && !s.report(a).StopAnswered {
		// No other job needs its devices, so killing it is not worth an epoch.
		action.Kind, action.Cause, action.Generation = WithdrawStop, train.StopRetune, s.Plan.Generation
		return action, true
	}
	action.Kind, action.Cause = Kill, a.Stop
	action.Reason = train.Reason{
		Code:    "GraceRanOut",
		Message: fmt.Sprintf("asked to leave %s ago and still running; the limit is %s", s.asked(a).Round(time.Second), grace),
	}
	return action, true
}

// withdrawStop lets an attempt go on if the newest plan gives it the same devices again, or if its system parameters
// are wanted again, or if its job may run for longer now. It does nothing once the agent has noted that it answers the
// code with a stop: the code may have left already. If the agent does so at this very moment, the attempt leaves and
// the next one starts on the same devices.
func withdrawStop(s State, a train.Attempt) (Action, bool) {
	wanted, planned := s.wanted[a.Job]
	moot := s.Planned && s.Plan.Generation > a.Generation && planned && runsAs(a, wanted)
	moot = moot && (a.Stop == train.StopPreempt || a.Stop == train.StopRescale)
	switch a.Stop { //nolint:exhaustive // the other causes stand
	case train.StopWanted:
		moot = !s.Jobs[a.Job].Leaves(a)
	case train.StopRetune:
		why, known := s.Retunes[ReportKey{a.Job, a.Number}]
		moot = known && why.Code == ""
	case train.StopTimeLimit:
		moot = !overtime(s, a)
	}
	return Action{Kind: WithdrawStop, Job: a.Job, Number: a.Number, Generation: s.Plan.Generation}, moot && !s.report(a).StopAnswered
}

// runsAs reports whether an attempt has the devices and the parameter servers of an allocation.
func runsAs(a train.Attempt, w train.Allocation) bool {
	return train.SamePlaces(w.Places(), a.Places()) && train.SameServers(w.Servers, a.ServerParts())
}

// requestStop compares what an attempt has with a plan newer than the one it was started from.
func requestStop(s State, a train.Attempt) (Action, bool) {
	action := Action{Kind: RequestStop, Job: a.Job, Number: a.Number}
	if !s.Planned || s.Plan.Generation <= a.Generation {
		return action, false
	}
	wanted, planned := s.wanted[a.Job]
	switch {
	case planned && runsAs(a, wanted):
		return action, false
	case planned:
		action.Cause = train.StopRescale
		action.Reason = wanted.Reason
		if action.Reason.Message == "" {
			action.Reason = train.Reason{Code: "Replanned", Message: fmt.Sprintf("plan %d gives it %s", s.Plan.Generation, amount(wanted))}
		}
	default:
		action.Cause = train.StopPreempt
		action.Reason = blocker(s.Plan, a.Job)
	}
	return action, true
}

// amount says in words what an allocation gives.
func amount(w train.Allocation) string {
	words := train.JoinPlaces(w.Places())
	switch n := w.ServerCount(); n {
	case 0:
		return words
	case 1:
		return words + " and 1 parameter server"
	default:
		return fmt.Sprintf("%s and %d parameter servers", words, n)
	}
}

// blocker returns the main reason why the plan gives a job no devices.
func blocker(p train.Plan, job train.JobID) train.Reason {
	for _, w := range p.Waiting {
		if w.Job == job && len(w.Blockers) > 0 {
			return w.Blockers[0]
		}
	}
	return train.Reason{Code: "Replanned", Message: fmt.Sprintf("plan %d gives it no device", p.Generation)}
}

// limitGrace is how long an attempt may take to save its state after the time limit of its job.
const limitGrace = time.Minute

// Grace returns how long an attempt may take to leave. It leaves when it saves its state next, so it gets the limit and
// twice the time that this will take as its steps show, and no less than three of its epochs, but at most MostGrace. An
// attempt that was answered with a stop is on its way out and gets twice the time.
func Grace(a train.Attempt, r train.AttemptReport, job train.Job, l Limits) time.Duration {
	if a.Stop == train.StopTimeLimit {
		return min(limitGrace, l.StopGrace)
	}
	grace := l.StopGrace
	if next, known := r.NextSave(job.Spec, a.DeviceCount(), r.Steps.At); known {
		grace += 2 * max(r.Steps.At.Add(next).Sub(a.StopSince), 0)
	}
	grace = max(grace, 3*epochTime(a, r, job))
	if r.StopAnswered && r.Spoke {
		grace *= 2
	}
	return min(grace, max(l.MostGrace, l.StopGrace))
}

// epochTime returns the mean time of an epoch as far as counts show it, 0 if no epoch has ended.
func epochTime(a train.Attempt, r train.AttemptReport, job train.Job) time.Duration {
	var longest time.Duration
	if n := r.EpochsDone - a.StartedEpochs; n > 0 && a.StopSince.After(a.StartedAt) && !a.StartedAt.IsZero() {
		longest = a.StopSince.Sub(a.StartedAt) / time.Duration(n)
	}
	if a.StartedEpochs > 0 {
		longest = max(longest, time.Duration(job.RunSeconds/float64(a.StartedEpochs)*float64(time.Second)))
	}
	return longest
}
