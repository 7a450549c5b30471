package train

import "time"

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
	if s.Of == 0 && s.Known() && spec.TrainingSetSize > 0 {
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

// Resumes returns how many epochs, and steps of the next one, the state holds from which the next attempt goes on. The
// end of an epoch counts as saved.
func (r AttemptReport) Resumes(a Attempt) (epochs, step int) {
	epochs = max(r.EpochsDone, a.StartedEpochs, r.CheckpointEpochs)
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
	// EpochStep counts the steps of the next epoch that a checkpoint holds.
	EpochStep int `json:"epoch_step,omitempty"`
	// LostSteps and LostSeconds are what was trained since, as far as it is known.
	LostSteps   int     `json:"lost_steps,omitempty"`
	LostSeconds float64 `json:"lost_seconds,omitempty"`
}
