package diff

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Verdict is what the end of an attempt means for its job.
type Verdict struct {
	Outcome    train.Outcome
	EpochsDone int
	// Note explains a success that a person should look at; Reason explains a failure.
	Note   string
	Reason train.Reason
	// Forced is set if an attempt that was asked to leave had to be killed.
	Forced bool
	// Resume says from where the next attempt goes on.
	Resume train.Resume
	// Retry is how long the next attempt waits. Retries numbers it if it follows a failure of the program, not a loss.
	Retry   time.Duration
	Retries int
}

// Judge decides what an exit means. It returns the same verdict for the same record, so a crash between the decision
// and its publication does no harm.
func Judge(a train.Attempt, r train.AttemptReport, job train.Job) Verdict {
	r = a.Unreported.In(r)
	e := newEnding(a, r, job)
	v := Verdict{EpochsDone: e.epochs, Resume: e.resume()}
	switch {
	case a.Stop == train.StopCancel && !e.byItself():
		v.Outcome = train.OutcomeCancelled
	case e.finished():
		v.Outcome, v.Note = train.OutcomeSucceeded, join(converged(job), missed(a))
	case a.Stop == train.StopConverged && e.exit.Forced:
		v.Outcome, v.Note = train.OutcomeSucceeded, converged(job)+"; it did not leave when asked and was killed"
	case a.Stop == train.StopOverspent && e.left(), e.timedOut():
		v.Outcome, v.Reason = train.OutcomeFailed, e.exceeded()
	case e.exit.Forced && makesRoom(a.Stop):
		v.Outcome, v.Forced = train.OutcomePreempted, true
	case e.interrupted():
		return lost(v, a, r, job, e.exit)
	case e.clean() && r.Ended == reportedFailed:
		v.Outcome = train.OutcomeFailed
		v.Reason = train.Reason{Code: "ReportedFailure", Message: "the program reported a failure and ended with status 0"}
	case e.obeyed():
		v.Outcome = train.OutcomePreempted
	case e.clean():
		v.Outcome, v.Note = train.OutcomeSucceeded, join(note(v.EpochsDone, r, job), missed(a))
	default:
		return failed(v, e)
	}
	return v
}

// exitStatus is the reason code of a program that ended with a status other than 0.
const exitStatus = "ExitStatus"

// What training code reports about its own end.
const (
	reportedFinished = "finished"
	reportedFailed   = "failed"
)

// ending is the exit of an attempt with everything its judgement depends on.
type ending struct {
	attempt train.Attempt
	report  train.AttemptReport
	job     train.Job
	exit    train.Exit
	// epochs is how far the attempt has come.
	epochs int
}

func newEnding(a train.Attempt, r train.AttemptReport, job train.Job) ending {
	return ending{attempt: a, report: r, job: job, exit: Exit(a), epochs: epochsOf(a, r, job)}
}

// epochsOf returns how many epochs an attempt has come to. Earlier attempts may have reported more, which it repeats if
// no checkpoint holds them.
func epochsOf(a train.Attempt, r train.AttemptReport, job train.Job) int {
	epochs := max(r.EpochsDone, r.CheckpointEpochs, a.StartedEpochs)
	if r.CountsCheckpoints(a) {
		return epochs
	}
	return max(epochs, job.EpochsDone)
}

// Exit returns how an attempt ended, and why it was ended if the executor did so.
func Exit(a train.Attempt) train.Exit {
	exit := train.Exit{Lost: true}
	if a.Exit != nil {
		exit = *a.Exit
	}
	if a.Stop == train.StopSilent && exit.Forced && exit.Reason.Code == "" {
		exit.Reason = silence()
	}
	return exit
}

// resume compares what the code trained with what it saved. Its steps are those of its last heartbeats; without any,
// an attempt that saved nothing has lost its whole time.
func (e ending) resume() train.Resume {
	a, r := e.attempt, e.report
	epochs, step := r.Resumes(a)
	if e.epochs > epochs && !r.CountsCheckpoints(a) {
		epochs, step = e.epochs, 0
	}
	resume := train.Resume{EpochStep: step, Saved: r.FoundCheckpoint, RepeatedEpochs: max(e.epochs, e.job.EpochsDone) - epochs}
	switch {
	case r.Steps.Known() && r.Steps.Epoch == epochs:
		resume.LostSteps = max(r.Steps.Done-step, 0)
		resume.LostSeconds = float64(resume.LostSteps) * r.Steps.Seconds
	case r.FoundCheckpoint: // nobody knows how much work is in it
	case !r.Steps.Known() && epochs == a.StartedEpochs && step == a.StartedStep && !a.StartedAt.IsZero():
		resume.LostSeconds = max(a.ExitedAt.Sub(a.StartedAt).Seconds(), 0)
	}
	return resume
}

// clean reports whether the program ended with status 0.
func (e ending) clean() bool { return e.exit.Clean() }

// byItself reports whether the program ended well without being asked to leave.
func (e ending) byItself() bool { return e.clean() && !e.exit.Forced && !e.report.StopAnswered }

// obeyed reports whether the program ended as it was asked to: well, or by a signal.
func (e ending) obeyed() bool { return e.clean() && e.report.StopAnswered || e.leftBySignal() }

// signalled reports whether the program was asked to leave by a signal only.
func (e ending) signalled() bool {
	return e.report.StopAnswered && e.report.Signal != "" && !e.report.Spoke && !e.exit.Lost && !e.exit.Forced
}

// leftBySignal reports whether the program ended with its work saved after a signal asked it to, whatever its status.
func (e ending) leftBySignal() bool { return e.signalled() && e.report.Checkpoint != "" }

// left reports whether the attempt ended because it was asked to, on its own or by force.
func (e ending) left() bool { return e.exit.Forced || e.obeyed() }

// timedOut reports whether the attempt ended because of the time limit of its job, or ended for another reason and has
// left no time for the next one.
func (e ending) timedOut() bool {
	if e.attempt.Stop == train.StopTimeLimit {
		return !e.byItself()
	}
	left, limited := e.job.LimitLeft(e.attempt, e.attempt.ExitedAt)
	return limited && left <= 0 && (e.obeyed() || e.interrupted())
}

// exceeded is the limit for which the job has failed.
func (e ending) exceeded() train.Reason {
	if e.attempt.Stop == train.StopOverspent {
		return tooExpensive(e.job)
	}
	return ranOut(e.job)
}

// finished reports whether the job has done all its work.
func (e ending) finished() bool {
	s := e.job.Spec
	steps := s.MaxSteps > 0 && e.report.Steps.Total >= s.MaxSteps
	all := e.report.Ended == reportedFinished || steps || s.MaxEpochs > 0 && e.epochs >= s.MaxEpochs || e.job.ConvergedEpochs > 0
	return (e.clean() || e.leftBySignal()) && all && e.report.Ended != reportedFailed
}

// interrupted reports whether something other than the program ended the attempt. A program that ran out of a disk or
// whose device broke counts as interrupted, and so does one that shares a device and ran out of its memory: others use
// them as well. A program that a signal asked to leave, and that saved nothing, counts as well: its end with status 0
// is no success.
func (e ending) interrupted() bool {
	unsaved := e.signalled() && e.clean() && e.report.Checkpoint == ""
	return unsaved || interrupted(e.attempt, e.exit) && !e.leftBySignal()
}

func interrupted(a train.Attempt, e train.Exit) bool {
	if e.Reason.Code == train.OutOfMemory && !e.Forced {
		return false // the next attempt would run out of it, too
	}
	return e.Forced || e.Lost || e.Signal != "" || e.OutOfDisk() || e.DeviceFailed() || a.Memory > 0 && e.OutOfDeviceMemory()
}

// makesRoom reports whether a stop for this cause is followed by another attempt.
func makesRoom(c train.StopCause) bool {
	return c == train.StopPreempt || c == train.StopRescale || c == train.StopRetune || c == train.StopWanted
}

// converged explains a success before the last epoch; it is empty if the job did all epochs.
func converged(job train.Job) string {
	if job.ConvergedEpochs == 0 {
		return ""
	}
	return fmt.Sprintf("the loss had converged after %d of %d epochs", job.ConvergedEpochs, job.Spec.MaxEpochs)
}

// tooExpensive is the reason for ending a job that costs more than its group allows.
func tooExpensive(job train.Job) train.Reason {
	return train.Reason{Code: "TooExpensive", Message: job.Overspent, Hint: "submit it again: its group has learned from it"}
}

// ranOut is the reason for ending a job at its time limit.
func ranOut(job train.Job) train.Reason {
	return train.Reason{
		Code: "TimeLimit", Message: fmt.Sprintf("it has reached its time limit of %s", job.Spec.TimeLimit),
		Hint: "its checkpoints are kept; submit it again with a longer time_limit",
	}
}

// note explains a success with fewer reported epochs than asked for.
func note(done int, r train.AttemptReport, job train.Job) string {
	if job.Spec.MaxEpochs <= done {
		return ""
	}
	if !r.Spoke && done == 0 {
		return fmt.Sprintf("ended with status 0; none of its %d epochs was reported", job.Spec.MaxEpochs)
	}
	return fmt.Sprintf("ended with status 0 after %d of %d epochs were reported", done, job.Spec.MaxEpochs)
}

// missed says that the figures of epochs are lost.
func missed(a train.Attempt) string {
	if a.Unreported == nil {
		return ""
	}
	return fmt.Sprintf("%d reports of attempt %d did not arrive, because the agent of %s was away at its end: its epochs count, their losses and times are missing",
		a.Unreported.Reports, a.Number, a.Home())
}

func join(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}

func failure(e train.Exit) train.Reason {
	if e.Reason.Code != "" {
		return e.Reason
	}
	if e.Message != "" {
		return train.Reason{Code: "NotStarted", Message: e.Message, Hint: "correct the submission and submit it under another id"}
	}
	return train.Reason{
		Code: exitStatus, Message: fmt.Sprintf("the program ended with status %d", e.Code), Hint: "its last output is below; all of it is in the job's logs",
	}
}

// failed decides whether a program that ended with a status other than 0 runs again: not if it could not be started, or
// was already started again as often as it may.
func failed(v Verdict, e ending) Verdict {
	v.Outcome, v.Reason = train.OutcomeFailed, failure(e.exit)
	if e.signalled() && v.Reason.Code == exitStatus {
		v.Reason.Message += fmt.Sprintf(" after %s had asked it to leave, and without a checkpoint newer than its start", e.report.Signal)
		v.Reason.Hint = "let it save its state before it ends, or leave out preempt and checkpoint; " + v.Reason.Hint
	}
	allowed := 0
	switch {
	case e.exit.Message != "" || e.exit.Reason.Code != "" && e.exit.Reason.Code != train.OutOfMemory:
	case e.job.Spec.Retries != nil:
		allowed = *e.job.Spec.Retries
	case e.report.SavedAnew(e.attempt):
		allowed = 1
	}
	switch tried := e.attempt.Retries; {
	case tried < allowed:
		v.Outcome, v.Reason, v.Retry, v.Retries = train.OutcomeRecovering, train.Reason{}, RetryDelay(tried+1), tried+1
	case tried > 0:
		v.Reason.Message += fmt.Sprintf("; retries before: %d", tried)
	}
	return v
}

// retriesBeforeNext counts the attempts, up to and including a, whose program was started again after it failed.
func retriesBeforeNext(a train.Attempt) int {
	if failedItself(a) {
		return a.Retries + 1
	}
	return a.Retries
}

// failedItself reports whether the program of an attempt that another one follows ended with a status other than 0.
func failedItself(a train.Attempt) bool {
	return a.Outcome == train.OutcomeRecovering && a.Exit != nil && (a.Exit.Code != 0 || a.Exit.Reason.Code == train.OutOfMemory) && !interrupted(a, *a.Exit)
}

// lost decides between another attempt and giving up.
func lost(v Verdict, a train.Attempt, r train.AttemptReport, job train.Job, e train.Exit) Verdict {
	a.Outcome = train.OutcomeRecovering
	inARow := lostBeforeNext(a, r)
	if ofMachine(&e) {
		v.Outcome, v.Retry = train.OutcomeRecovering, RetryDelay(unstartedBeforeNext(a))
		return v
	}
	limit := train.DefaultMaxRestarts
	if job.Spec.MaxRestarts != nil {
		limit = *job.Spec.MaxRestarts
	}
	if inARow > limit {
		v.Outcome = train.OutcomeFailed
		v.Reason = train.Reason{
			Code:    "TooManyRestarts",
			Message: fmt.Sprintf("%s; %d attempts in a row ended like this without saving any progress, and max_restarts is %d", e.Words(), inARow, limit),
			Hint:    cmp.Or(e.Reason.Hint, "look in the logs for what these attempts have in common (memory?)"),
		}
		return v
	}
	v.Outcome = train.OutcomeRecovering
	v.Retry = RetryDelay(inARow)
	return v
}

// lostBeforeNext counts the attempts in a row, up to and including a, that were lost without progress that was saved.
func lostBeforeNext(a train.Attempt, r train.AttemptReport) int {
	if epochs, step := r.Resumes(a); epochs > a.StartedEpochs || step > a.StartedStep || r.FoundCheckpoint {
		return 0
	}
	if a.Outcome == train.OutcomeRecovering && !unstarted(a) && !failedItself(a) {
		return a.LostInARow + 1
	}
	return a.LostInARow
}

// unstarted reports whether the machine, and not the code, is to blame for the end of a.
func unstarted(a train.Attempt) bool { return ofMachine(a.Exit) }

// ofMachine reports whether some processes of an attempt never ran, or the disk of the machine's data folder was full.
// Nothing is started there before it has room again, so such ends need no bound.
func ofMachine(e *train.Exit) bool {
	return e != nil && (e.Unstarted || e.Reason.Code == train.DiskFull)
}

// unstartedBeforeNext counts the attempts in a row, up to and including a, whose processes never all ran.
func unstartedBeforeNext(a train.Attempt) int {
	if unstarted(a) {
		return a.UnstartedInARow + 1
	}
	return 0
}

// RetryDelay returns how long the next attempt waits after lostInARow losses in a row: 1 s, 2 s, 4 s and so on, up to
// a minute.
func RetryDelay(lostInARow int) time.Duration {
	return min(time.Second<<min(max(lostInARow-1, 0), 10), longestRetry)
}

// longestRetry bounds RetryDelay.
const longestRetry = time.Minute

// Details returns the verdict to publish for a recorded outcome. The record stands even if a later report would
// change the judgement.
func Details(a train.Attempt, r train.AttemptReport, job train.Job) Verdict {
	v := Judge(a, r, job)
	if v.Outcome == a.Outcome {
		return v
	}
	v = Verdict{Outcome: a.Outcome, EpochsDone: v.EpochsDone, Resume: v.Resume}
	exit := Exit(a)
	switch a.Outcome {
	case train.OutcomeSucceeded:
		v.Note = join(note(v.EpochsDone, r, job), missed(a))
	case train.OutcomeFailed:
		v.Reason = failure(exit)
	case train.OutcomePreempted:
		v.Forced = exit.Forced
	case train.OutcomeRecovering:
		v.Retry = max(a.NotBefore.Sub(a.ExitedAt), 0)
		if failedItself(a) {
			v.Retries = a.Retries + 1
		}
	case train.OutcomeCancelled, train.OutcomeNone:
	}
	return v
}

// reportPatience bounds how long an end waits for the agent of its node while none of its reports arrives.
const reportPatience = 15 * time.Second

// Wait is the wait of an end for reports. Left is the smallest number of reports so far that were still on their way,
// and Since is when that number was first seen.
type Wait struct {
	Since time.Time
	Left  int
}

// Next returns the wait after a look at how many reports are on their way. The zero value has not begun.
func (w Wait) Next(left int, now time.Time) Wait {
	if w.Since.IsZero() || left < w.Left {
		return Wait{now, left}
	}
	return w
}

// Over reports whether nothing has arrived for so long that nothing will.
func (w Wait) Over(now time.Time) bool { return now.Sub(w.Since) >= reportPatience }

// ReportsDue returns how many reports the agent of an exited attempt may still hold: while the bus was away the agent
// held them, and the exit overtook them. It returns 0 once the agent was seen after the exit with none left, and
// math.MaxInt as long as it was not seen since.
func ReportsDue(a train.Attempt, r train.AttemptReport, job train.Job, agent train.Node) int {
	complete := r.Ended != "" || epochsOf(a, r, job) >= job.Spec.MaxEpochs
	switch {
	case complete || agent.SeenAt.IsZero():
		return 0
	case agent.SeenAt.After(a.ExitedAt):
		return agent.ReportsWaiting
	}
	return math.MaxInt
}
