package register

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// apply changes the record by a fact that is legal in its state. It may correct the state that the table gives. It
// returns false for an old fact that no longer matters.
func apply(job *train.Job, f Fact, state *train.State) (changed bool, err error) { //nolint:gocyclo // a table of the facts, a line each
	switch b := f.Body.(type) {
	case *event.Submitted:
		return submitted(job, f, b), nil
	case *event.Admitted:
		return admitted(job, f, b), nil
	case *event.Rejected:
		return rejected(job, f, b), nil
	case *event.DependencyEnded:
		return dependencyEnded(job, f, b, state), nil
	case *event.Tuned:
		return tuned(job, b), nil
	case *event.Queued:
		return queued(job, b, *state), nil
	case *event.Planned:
		return planned(job, f, b, *state), nil
	case *event.Started:
		return started(job, f, b, state), nil
	case *event.EpochEnded:
		return epochEnded(job, b, state), nil
	case *event.CheckpointWritten:
		return checkpointWritten(job, b), nil
	case *event.StopRequested:
		return stopRequested(job, b), nil
	case *event.StopWithdrawn:
		return stopWithdrawn(job, b, state), nil
	case *event.Preempted:
		return preempted(job, f, b), nil
	case *event.AttemptLost:
		return attemptLost(job, f, b), nil
	case *event.Reestimated:
		return reestimated(job, f, b), nil
	case *event.Straggling:
		return straggling(job, b), nil
	case *event.Outgrew:
		return outgrew(job, b), nil
	case *event.Converged:
		return converged(job, b), nil
	case *event.Overspent:
		return overspent(job, b), nil
	case *event.CancelRequested:
		return cancelRequested(job, b), nil
	case *event.Wanted:
		return wanted(job, f, b)
	case *event.EditRequested:
		return false, nil // its answer is folded
	case *event.EditDecided:
		return edited(job, f, b)
	case *event.Succeeded:
		return b.Resumed == job.Resumed && succeeded(job, f, b), nil
	case *event.Failed:
		return b.Resumed == job.Resumed && failed(job, f, b), nil
	case *event.Cancelled:
		return b.Resumed == job.Resumed && cancelled(job, f, b), nil
	}
	return false, errBody
}

func submitted(job *train.Job, f Fact, b *event.Submitted) bool {
	hash, err := Hash(b.Spec)
	if err != nil {
		return false
	}
	job.Spec, job.SpecHash, job.SubmittedAt = b.Spec, hash, f.Time
	explain(job, "Submitted", "waits to be admitted", "")
	return true
}

func admitted(job *train.Job, f Fact, b *event.Admitted) bool {
	job.Spec, job.AdmittedAt, job.Ended, job.Seal = b.Spec, f.Time, b.Ended, b.Seal
	job.EpochsDone, job.EpochStep, job.EpochSteps, job.Checkpoint = b.From.EpochsDone, b.From.EpochStep, b.From.EpochSteps, b.From.Path
	message := fmt.Sprintf("waits for the next plan, position %d in the queue", b.Position)
	if b.Spec.Continue != "" {
		message += fmt.Sprintf("; continues %s%s", b.Spec.Continue, afterSaved(job))
	}
	if b.Spec.Array != "" {
		message = fmt.Sprintf("an array of %d jobs, %s-INDEX", len(job.Members()), job.ID)
	}
	explain(job, train.ReasonAdmitted, message, "")
	return true
}

func rejected(job *train.Job, f Fact, b *event.Rejected) bool {
	job.Blockers, job.Infeasible = bounded(b.Reasons), b.Infeasible
	first := train.Reason{}
	if len(b.Reasons) > 0 {
		first = b.Reasons[0]
	}
	explain(job, cmp.Or(first.Code, "Rejected"), cmp.Or(b.Message, "refused"), first.Hint)
	if job.SubmittedAt.IsZero() {
		job.SubmittedAt = f.Time
	}
	job.FinishedAt = f.Time
	return true
}

// dependencyEnded notes the end of a job that this one waits for. If it is not the required end, the job is cancelled.
// An array waits for its own jobs, and ends with the last of them.
func dependencyEnded(job *train.Job, f Fact, b *event.DependencyEnded, state *train.State) bool {
	if !slices.ContainsFunc(job.Awaits(), func(d train.Dependency) bool { return d.Job == b.Job }) {
		return false
	}
	ended := maps.Clone(job.Ended)
	if ended == nil {
		ended = map[train.JobID]train.State{}
	}
	ended[b.Job] = b.State
	job.Ended, job.ReadyAt = ended, f.Time
	if job.Spec.Array != "" {
		if len(ended) == len(job.Members()) {
			*state, job.FinishedAt = job.ArrayEnd(), f.Time
		}
		explain(job, "Array", job.ArrayWords(), "")
		return true
	}
	if never, is := job.NeverStarts(); is {
		job.CancelRequested = true
		explain(job, never.Code, never.Message, "")
		return true
	}
	message := fmt.Sprintf("%s has ended as %s", b.Job, b.State)
	if left := job.Awaits(); len(left) > 0 {
		message += "; " + left[0].Reason().Message
	}
	explain(job, "DependencyEnded", message, "")
	return true
}

func tuned(job *train.Job, b *event.Tuned) bool {
	if !job.AwaitsBatch() || b.BatchSize < 1 {
		return false
	}
	job.Tune(b.BatchSize)
	explain(job, "Tuned",
		fmt.Sprintf("batch size %d, after %d recurrences of group %s; %d was submitted", b.BatchSize, b.Recurrences, b.Group, b.Submitted),
		"")
	return true
}

func queued(job *train.Job, b *event.Queued, state train.State) bool {
	job.Generation = b.Generation
	if !waits(state) {
		return true // it still runs: the reasons are shown once it has stopped
	}
	job.Devices = nil
	if why := job.Withheld(); why.Code != "" {
		explain(job, why.Code, why.Message, why.Hint)
		return true
	}
	job.Blockers = bounded(b.Blockers)
	code, message, hint := "Waiting", "waits for devices", ""
	if len(b.Blockers) > 0 {
		first := b.Blockers[0]
		code, message, hint = cmp.Or(first.Code, code), cmp.Or(first.Message, message), first.Hint
	}
	explain(job, code, message, hint)
	return true
}

func planned(job *train.Job, f Fact, b *event.Planned, state train.State) bool {
	job.Generation = b.Generation
	if job.Withheld().Code != "" && waits(state) {
		return true // the plan did not know yet
	}
	place := train.OnNodes(train.Attempt{Node: b.Node, Devices: b.Devices, Parts: b.Parts}.Places())
	switch {
	case state == train.StateStarting:
		job.Devices = b.Devices
		explain(job, cmp.Or(b.Reason.Code, "Planned"), join("starts on "+place, b.Reason.Message), b.Reason.Hint)
	case train.SameDevices(job.Devices, b.Devices):
		explain(job, cmp.Or(b.Reason.Code, "Planned"), join("goes on with "+place, b.Reason.Message), b.Reason.Hint)
	default:
		explain(job, cmp.Or(b.Reason.Code, "Planned"), join("will move to "+place, b.Reason.Message), b.Reason.Hint)
	}
	if b.RemainingSeconds > 0 {
		predict(job, f.Time, train.Span{Expected: b.RemainingSeconds, Low: b.RemainingLowSeconds, High: b.RemainingHighSeconds})
	}
	return true
}

func started(job *train.Job, f Fact, b *event.Started, state *train.State) bool {
	if b.Attempt <= job.Attempt {
		return false
	}
	if job.StartedAt.IsZero() {
		job.StartedAt = f.Time
	}
	// An epoch of this attempt may have been reported before its start, or none is expected.
	if job.EpochsDone > b.EpochsDone || job.Spec.MaxEpochs == 0 {
		*state = train.StateRunning
	}
	job.Attempt, job.Restarts = b.Attempt, max(b.Attempt-1, 0)
	job.Devices, job.Generation, job.AttemptStartedAt = b.Devices, b.Generation, f.Time
	job.EpochsDone = max(job.EpochsDone, b.EpochsDone)
	if b.FromScratch {
		job.EpochsDone, job.EpochStep, job.Checkpoint, job.ConvergedEpochs, job.BeganAgain = 0, 0, "", 0, b.Attempt
		warn(job, fmt.Sprintf("attempt %d begins again: no checkpoint of the job is left on %s", b.Attempt, cmp.Or(b.Machine, b.Node)))
	}
	message := fmt.Sprintf("attempt %d runs on %s", b.Attempt, train.OnNodes(b.Places()))
	switch {
	case b.FromScratch:
		message += ", begins again: no checkpoint is left"
	case b.EpochsDone == job.EpochsDone && job.EpochStep > 0:
		message += ", goes on after " + reached(job)
	case b.EpochsDone > 0:
		message += fmt.Sprintf(", goes on after epoch %d", b.EpochsDone)
	}
	explain(job, "Started", message, "")
	return true
}

// epochsDone returns the progress of a job in words.
func epochsDone(job *train.Job) string {
	if job.Spec.MaxEpochs == 0 {
		return fmt.Sprintf("epoch %d", job.EpochsDone)
	}
	return fmt.Sprintf("%d of %d epochs", job.EpochsDone, job.Spec.MaxEpochs)
}

func epochEnded(job *train.Job, b *event.EpochEnded, state *train.State) bool {
	if b.Attempt < job.BeganAgain {
		*state = job.State
		return false
	}
	late := b.Attempt < job.Attempt
	if late {
		*state = job.State
	}
	if late && b.EpochsDone <= job.EpochsDone {
		return false
	}
	if b.EpochsDone > job.EpochsDone {
		job.EpochsDone, job.EpochStep = b.EpochsDone, 0
	}
	if b.BatchIgnored {
		job.OwnBatch = cmp.Or(b.Batch.LocalBatch, job.Spec.BatchSize)
	}
	if late || *state != train.StateRunning {
		return true
	}
	explain(job, "Training", epochsDone(job)+" done"+newest(job, b), "")
	return true
}

// newest returns the figures of the newest epoch. After a crash epochs before it end again: their figures are older.
func newest(job *train.Job, b *event.EpochEnded) string {
	if b.EpochsDone < job.EpochsDone {
		return fmt.Sprintf(", repeats epoch %d", b.EpochsDone+1)
	}
	figures := ""
	if b.EpochSeconds > 0 {
		figures += fmt.Sprintf(", the last one in %s", spoken(b.EpochSeconds))
	}
	if b.Loss != nil {
		figures += fmt.Sprintf(", loss %.4g", *b.Loss)
	}
	return figures
}

// checkpointWritten notes the checkpoint, and the steps of an epoch that it holds: the job's progress counts them.
func checkpointWritten(job *train.Job, b *event.CheckpointWritten) bool {
	if b.Attempt < job.BeganAgain {
		return false
	}
	if b.EpochsDone == job.EpochsDone && b.EpochStep > job.EpochStep {
		job.EpochStep, job.EpochSteps = b.EpochStep, b.EpochSteps
	}
	if b.Attempt >= job.Attempt {
		job.Checkpoint = clip(b.Path, maxText)
	}
	return true
}

func stopRequested(job *train.Job, b *event.StopRequested) bool {
	if b.Attempt < job.Attempt {
		return false
	}
	when := "at the end of its epoch"
	switch {
	case b.AnyStep:
		when = "after its step"
	case b.Signal == train.SignalSave:
		when = "by SIGUSR1"
	case b.Signal != "":
		when = "after its next checkpoint"
	}
	message := "asked to leave " + when
	switch b.Cause {
	case train.StopRescale:
		message = "leaves " + when + " to go on with other devices"
	case train.StopRetune:
		message = "leaves " + when + " to go on with other system parameters"
	case train.StopCancel, train.StopTimeLimit:
		message = "asked to end"
	case train.StopConverged, train.StopOverspent:
		message = "ends " + when
	case train.StopPreempt, train.StopWanted, train.StopNone, train.StopSilent:
	}
	explain(job, cmp.Or(b.Reason.Code, "StopRequested"), join(message, b.Reason.Message), b.Reason.Hint)
	return true
}

func stopWithdrawn(job *train.Job, b *event.StopWithdrawn, state *train.State) bool {
	if b.Attempt < job.Attempt {
		*state = job.State
		return false
	}
	message := fmt.Sprintf("goes on where it is: plan %d gives it the same devices again", b.Generation)
	switch b.Cause { //nolint:exhaustive // a newer plan withdrew the others
	case train.StopRetune:
		message = "goes on with the system parameters that it has"
	case train.StopTimeLimit:
		message = "goes on: its time limit is longer now"
	case train.StopWanted:
		message = "goes on where it is, as asked"
	}
	explain(job, "StopWithdrawn", message, "")
	return true
}

func preempted(job *train.Job, f Fact, b *event.Preempted) bool {
	if !endAttempt(job, f.Time, b.Attempt, b.EpochsDone) {
		return false
	}
	keepSteps(job, b.Resume)
	state := saved(*job, b.Resume)
	counted := state.EpochsDone > 0 || state.EpochStep > 0
	kept := counted || b.Resume.Saved
	message := "left after " + reached(&state)
	switch {
	case !kept:
		message = "left before its first checkpoint"
	case !counted:
		message = "left after a checkpoint"
	}
	switch b.Cause {
	case train.StopRescale:
		job.Rescales++
		message += " to go on with other devices"
	case train.StopPreempt:
		job.Preemptions++
		message += " to make room"
	case train.StopRetune:
		message += " to go on with other system parameters"
	case train.StopWanted:
		message += ", as asked"
	case train.StopNone, train.StopCancel, train.StopConverged, train.StopOverspent, train.StopTimeLimit, train.StopSilent:
	}
	message += after(job, b, kept)
	hint := ""
	if b.Forced && b.Cause != train.StopWanted {
		message += " (killed: it did not leave within the grace period)"
		hint = "call start_epoch and end_epoch in the training loop, so that the job can leave without losing work"
		warn(job, fmt.Sprintf("attempt %d was killed because it did not leave within the grace period", b.Attempt))
	}
	why := job.Withheld()
	explain(job, cmp.Or(why.Code, "Preempted"), message, cmp.Or(hint, why.Hint))
	return true
}

// after says what follows once a job has left.
func after(job *train.Job, b *event.Preempted, saved bool) string {
	gone, why := lost(b.Resume), job.Withheld()
	switch {
	case why.Code != "":
		return "; " + why.Message + gone
	case !saved:
		return "; begins again" + gone
	case b.Cause == train.StopPreempt || gone != "":
		return "; goes on from its checkpoint" + gone
	}
	return ""
}

func attemptLost(job *train.Job, f Fact, b *event.AttemptLost) bool {
	if !endAttempt(job, f.Time, b.Attempt, b.EpochsDone) {
		return false
	}
	job.Retries = max(job.Retries, b.Retry)
	if !b.Exit.Unstarted && b.Retry == 0 {
		job.Recoveries++
	}
	if mib := int64(b.Needs / unit.MiB); mib > job.Spec.EstimatedMemoryMiB {
		job.Spec.EstimatedMemoryMiB = mib
		warn(job,
			fmt.Sprintf("attempt %d ran out of its part of its device: from now on the job asks for %s", b.Attempt, job.Spec.EstimatedMemory()))
	}
	job.Outgrown = job.Outgrown || b.Needs > 0
	if b.Enlarged && b.Exit.OutOfDeviceMemory() {
		job.StepsTooLarge = true
		warn(job,
			fmt.Sprintf("attempt %d ran out of memory after it was asked for larger steps: it will not be asked again", b.Attempt))
	}
	if b.Exit.LogTail != "" {
		job.LogTail = clipTail(b.Exit.LogTail, maxLogTail)
	}
	keepSteps(job, b.Resume)
	state := saved(*job, b.Resume)
	message := fmt.Sprintf("attempt %d %s", b.Attempt, whatEnded(b)) + startsAgain(&state, b) + spoken(b.RetrySeconds) + lost(b.Resume)
	explain(job, cmp.Or(clip(b.Exit.Reason.Code, maxText/4), "AttemptLost"), message, clip(b.Exit.Reason.Hint, maxText))
	return true
}

// keepSteps counts the steps that a checkpoint holds, unless epochs after them were reported.
func keepSteps(job *train.Job, from train.Resume) {
	if from.RepeatedEpochs == 0 {
		job.EpochStep = max(job.EpochStep, from.EpochStep)
	}
}

// saved returns the job as far as its checkpoints hold it.
func saved(job train.Job, from train.Resume) train.Job {
	if from.RepeatedEpochs > 0 {
		job.EpochsDone, job.EpochStep = max(job.EpochsDone-from.RepeatedEpochs, 0), from.EpochStep
	}
	return job
}

// startsAgain returns in words where the next attempt begins: at the beginning, or after what was saved.
func startsAgain(state *train.Job, b *event.AttemptLost) string {
	switch known := state.EpochsDone > 0 || state.EpochStep > 0; {
	case b.Resume.Saved && !known:
		return ", tries again from its checkpoint in "
	case b.Retry > 0 && known:
		return fmt.Sprintf(", tries again from the checkpoint of %s in ", reached(state))
	case b.Retry > 0:
		return ", tries again from the beginning in "
	}
	return fmt.Sprintf("; starts again after %s in ", reached(state))
}

// whatEnded says how an attempt was lost or failed.
func whatEnded(b *event.AttemptLost) string {
	switch {
	case b.Exit.Reason.Message != "":
		return "ended: " + clip(b.Exit.Reason.Message, maxText/2)
	case b.Exit.Signal != "":
		return "was killed by " + b.Exit.Signal
	case b.Exit.OutOfDeviceMemory():
		return "ran out of memory of its device"
	case b.Exit.OutOfDisk():
		return "ended because a disk was full"
	case b.Exit.DeviceFailed():
		return "ended because its device is broken"
	case b.Retry > 0:
		return fmt.Sprintf("failed with exit status %d", b.Exit.Code)
	}
	return "vanished"
}

func reestimated(job *train.Job, f Fact, b *event.Reestimated) bool {
	job.EstimateSeconds = b.TotalSeconds
	if b.PriorityPenalty > job.PriorityPenalty {
		warn(job, b.Warning)
	}
	job.PriorityPenalty = b.PriorityPenalty
	predict(job, f.Time, train.Span{Expected: b.RemainingSeconds, Low: b.RemainingLowSeconds, High: b.RemainingHighSeconds})
	return true
}

func straggling(job *train.Job, b *event.Straggling) bool {
	if b.Attempt < job.Attempt {
		return false
	}
	warn(job, fmt.Sprintf("worker %d of attempt %d on %s of node %s takes %.2g times as long for a step as the median of its %d workers",
		b.Rank, b.Attempt, b.Device, b.Node, b.Slowdown, b.Workers))
	return true
}

// outgrew raises the job's memory request. A part may be smaller than the estimate if less was measured before. A
// repeated measurement that does not exceed the current request changes nothing.
func outgrew(job *train.Job, b *event.Outgrew) bool {
	known := job.Outgrown && b.Used <= job.Spec.EstimatedMemory()
	if b.Attempt < job.Attempt || b.Used <= b.Part || known || b.Needs < b.Used {
		return false
	}
	job.Spec.EstimatedMemoryMiB, job.Outgrown = max(job.Spec.EstimatedMemoryMiB, b.Needs.MiB()), true
	warn(job, fmt.Sprintf("attempt %d uses %s of %s of node %s, its part is %s: from now on the job asks for %s",
		b.Attempt, b.Used, b.Device, b.Node, b.Part, job.Spec.EstimatedMemory()))
	return true
}

func converged(job *train.Job, b *event.Converged) bool {
	if job.ConvergedEpochs > 0 || b.EpochsDone < 1 || b.EpochsDone > job.EpochsDone { // of a training that was lost
		return false
	}
	job.ConvergedEpochs = b.EpochsDone
	explain(job, "Converged",
		fmt.Sprintf("the loss has converged after %d of %d epochs: it fell by %.3g in the last one; the job ends after the current epoch", b.EpochsDone, job.Spec.MaxEpochs, b.LossDecrease),
		"")
	return true
}

func overspent(job *train.Job, b *event.Overspent) bool {
	if job.Overspent != "" {
		return false
	}
	job.Overspent = clip(fmt.Sprintf("it has cost %.5g J in energy and time; its limit, set from the cheapest job of group %s, is %.5g J", b.CostJoules, b.Group, b.CeilingJoules),
		maxText/2)
	explain(job, "TooExpensive", job.Overspent+"; the job ends after the current epoch",
		"leave out energy.stop_early to let jobs of the group finish at any cost")
	return true
}

func cancelRequested(job *train.Job, b *event.CancelRequested) bool {
	if job.CancelRequested {
		return false
	}
	job.CancelRequested = true
	message := "will end"
	if b.By != "" {
		message += ", as asked by " + clip(b.By, maxText/4)
	}
	explain(job, "CancelRequested", join(message, b.Reason), "")
	return true
}

func succeeded(job *train.Job, f Fact, b *event.Succeeded) bool {
	finish(job, f.Time, b.Attempt, b.EpochsDone)
	code := 0
	job.ExitCode = &code
	if job.ConvergedEpochs == 0 { // a converged job ended as requested
		warn(job, b.Note)
	}
	message := "ended after " + lasted(job)
	if counts(job) {
		message = lasted(job)
	}
	explain(job, "Finished", join(message, b.Note), "")
	return true
}

// counts reports whether the length of a job is known in epochs.
func counts(job *train.Job) bool { return job.EpochsDone > 0 || job.Spec.MaxEpochs > 0 }

// lasted says how long a job has run.
func lasted(job *train.Job) string {
	if counts(job) {
		return fmt.Sprintf("%d epochs in %s", job.EpochsDone, spoken(job.RunSeconds))
	}
	return spoken(job.RunSeconds)
}

func failed(job *train.Job, f Fact, b *event.Failed) bool {
	finish(job, f.Time, b.Attempt, b.EpochsDone)
	if code, known := b.Exit.Status(); known {
		job.ExitCode = &code
	}
	job.LogTail = clipTail(b.Exit.LogTail, maxLogTail)
	message := cmp.Or(b.Reason.Message,
		join(fmt.Sprintf("attempt %d ended with status %d", b.Attempt, b.Exit.Code), b.Exit.Message))
	explain(job, cmp.Or(b.Reason.Code, "Failed"), message, cmp.Or(b.Reason.Hint, fmt.Sprintf("switchyard logs %s", job.ID)))
	return true
}

func cancelled(job *train.Job, f Fact, b *event.Cancelled) bool {
	finish(job, f.Time, b.Attempt, b.EpochsDone)
	if never, is := job.NeverStarts(); is {
		explain(job, never.Code, never.Message, "submit it again without after, or after another job")
		return true
	}
	message := "ended as asked after " + lasted(job)
	if job.StartedAt.IsZero() {
		message = "ended as asked before it started"
	}
	explain(job, "Cancelled", message, "")
	return true
}
