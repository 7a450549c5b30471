package train

import (
	"cmp"
	"time"
)

// Steps is how far training code is in an epoch, as its newest heartbeat says. The zero value means that the code has
// reported no steps.
type Steps struct {
	// Epoch is the number of finished epochs. Done counts the optimizer steps of the epoch after them, and Of is how many
	// that epoch has; 0 if the code does not say.
	Epoch int `json:"epoch"`
	Done  int `json:"done"`
	Of    int `json:"of,omitempty"`
	// Total counts the steps since the first start of the job, as its code does.
	Total int `json:"total"`
	// Seconds is the mean time of the last steps.
	Seconds float64   `json:"step_seconds,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// Known reports whether steps were reported.
func (s Steps) Known() bool { return !s.At.IsZero() }

// In fills in what older libraries leave out: how many steps an epoch of the job has on a number of devices.
func (s Steps) In(spec Spec, devices int) Steps {
	if s.Of == 0 && s.Known() && (spec.TrainingSetSize > 0 || spec.MaxSteps > 0) {
		s.Of = spec.StepsPerEpoch(devices)
	}
	return s
}

// Part returns the part of the epoch that is done, less than 1; 0 if it is unknown.
func (s Steps) Part() float64 {
	const almost = 0.999 // the end of an epoch is reported, not guessed
	if s.Of <= 0 {
		return 0
	}
	return min(float64(s.Done)/float64(s.Of), almost)
}

// unwritten is the longest time between two writes of an attempt's steps to its report.
const unwritten = 15 * time.Second

// Reached adds the steps that the code has made, at its pace, since its heartbeat was written down.
func (s Steps) Reached(now time.Time) Steps {
	if s.Known() && s.Seconds > 0 {
		more := int(min(max(now.Sub(s.At), 0), unwritten).Seconds() / s.Seconds)
		s.Done, s.Total = s.Done+more, s.Total+more
	}
	return s
}

// Epochs returns the length of the training in epochs; 0 if it is not declared.
func (s Spec) Epochs() float64 {
	switch {
	case s.MaxSteps == 0:
		return float64(s.MaxEpochs)
	case s.TrainingSetSize == 0:
		return float64(max(s.MaxEpochs, 1))
	}
	all := float64(s.MaxSteps) / float64(s.StepsPerEpoch(s.MinDevices))
	if s.MaxEpochs > 0 {
		all = min(all, float64(s.MaxEpochs))
	}
	return all
}

// Sized returns the spec with the size of an epoch as its code reports it, if the user did not declare it.
func (s Spec) Sized(steps Steps, devices int) Spec {
	if s.TrainingSetSize == 0 && steps.Of > 0 {
		s.TrainingSetSize = steps.Of * max(s.Batch(devices).Global(devices), 1)
	}
	return s
}

// Done returns how many epochs of a job are done by its steps; false if no steps are known. Steps of an attempt that
// has ended count as far as a checkpoint holds them.
func (j Job) Done(spec Spec, a Attempt, r AttemptReport, now time.Time) (float64, bool) {
	if !a.Live() {
		saved := Steps{Done: j.EpochStep, Of: cmp.Or(j.EpochSteps, spec.StepsPerEpoch(max(spec.MinDevices, 1)))}
		return float64(j.EpochsDone) + saved.Part(), j.EpochStep > 0
	}
	epochs := max(j.EpochsDone, r.EpochsDone)
	steps := r.Steps.In(spec, a.DeviceCount()).Reached(now)
	switch {
	case !steps.Known():
		return float64(epochs), false
	case spec.MaxSteps > 0:
		return float64(min(steps.Total, spec.MaxSteps)) / float64(spec.StepsPerEpoch(a.DeviceCount())), true
	case steps.Epoch == epochs:
		return float64(epochs) + steps.Part(), true
	}
	return float64(epochs), true
}

// Progress returns which part of the training is done; false if its length is unknown.
func (j Job) Progress(a Attempt, r AttemptReport, now time.Time) (float64, bool) {
	spec := j.Spec.Sized(r.Steps, a.DeviceCount())
	all := spec.Epochs()
	done, _ := j.Done(spec, a, r, now)
	switch {
	case j.State == StateSucceeded && (j.EpochsDone == 0 || all == 0 || j.Spec.MaxSteps > 0):
		return 1, true
	case all == 0:
		return 0, false
	}
	return min(done/all, 1), true
}

// EpochEnd predicts how long after At the epoch ends; false if the code did not report enough.
func (s Steps) EpochEnd() (time.Duration, bool) {
	if s.Of <= 0 || !(s.Seconds > 0) {
		return 0, false
	}
	return time.Duration(float64(max(s.Of-s.Done, 1)) * s.Seconds * float64(time.Second)), true
}

// NextSave predicts how long after now the code of an attempt saves its state if it is asked to leave: at the end of
// its epoch, or of its step if it can stop at any; false if the code has not reported enough.
func (r AttemptReport) NextSave(spec Spec, devices int, now time.Time) (time.Duration, bool) {
	steps := r.Steps.In(spec, devices)
	end, known := steps.EpochEnd()
	if !known && !r.AnyStep {
		return 0, false
	}
	step := time.Duration(steps.Seconds * float64(time.Second))
	if r.AnyStep {
		return step, true
	}
	return max(end-now.Sub(steps.At), step), true
}

// Saved reports whether the code of an attempt, or of one before it, has saved anything from which the job could go on,
// or will save it when it is asked to leave.
func (r AttemptReport) Saved(a Attempt) bool {
	if r.Signal != "" && !r.Spoke {
		return r.Checkpoint != "" || r.Signal == SignalSave
	}
	return r.Checkpoint != "" || r.EpochsDone > 0 || a.StartedEpochs > 0 || a.StartedStep > 0
}

// SavedAnew reports whether the code of an attempt has saved a checkpoint beyond the state from which it began.
func (r AttemptReport) SavedAnew(a Attempt) bool {
	further := r.CheckpointEpochs > a.StartedEpochs || r.CheckpointEpochs == a.StartedEpochs && r.CheckpointStep > a.StartedStep
	return r.FoundCheckpoint || r.Checkpoint != "" && further
}

// CountsCheckpoints reports whether the code of an attempt, or of one before, says which epochs its checkpoints hold.
func (r AttemptReport) CountsCheckpoints(a Attempt) bool {
	return a.CountsCheckpoints || r.Checkpoint != "" && !r.FoundCheckpoint
}

// Resumes returns how many epochs, and steps of the next one, the state holds from which the next attempt goes on.
// The end of an epoch counts as saved, unless the code says what its checkpoints hold: then only if it left as it was
// asked to, after saving.
func (r AttemptReport) Resumes(a Attempt) (epochs, step int) {
	epochs = max(a.StartedEpochs, r.CheckpointEpochs)
	if !r.CountsCheckpoints(a) || r.StopAnswered && a.Exit != nil && a.Exit.Clean() && !a.Exit.Forced {
		epochs = max(epochs, r.EpochsDone)
	}
	if epochs == a.StartedEpochs {
		step = a.StartedStep
	}
	if r.Checkpoint != "" && epochs == r.CheckpointEpochs {
		step = max(step, r.CheckpointStep)
	}
	return epochs, step
}

// Resume says from where a job goes on, besides its whole epochs, and what it has lost.
type Resume struct {
	// Saved is set if a checkpoint was found by the job's pattern. How many epochs and steps it holds is not known.
	Saved bool `json:"saved,omitempty"`
	// EpochStep counts the steps of the next epoch that a checkpoint holds.
	EpochStep int `json:"epoch_step,omitempty"`
	// RepeatedEpochs counts the epochs that were reported and that no checkpoint holds: they are trained again.
	RepeatedEpochs int `json:"repeated_epochs,omitempty"`
	// LostSteps and LostSeconds are what was trained since, as far as it is known.
	LostSteps   int     `json:"lost_steps,omitempty"`
	LostSeconds float64 `json:"lost_seconds,omitempty"`
}
