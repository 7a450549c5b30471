package traces

import "github.com/switchyard-dl/switchyard/libs/train"

// Course is the truth about the training of an application on one model of device, for code that replays it.
type Course struct {
	Profile
	steps    *StepTimes
	training Training
}

// Course returns the course on a model of device; the traces of Pollux have one without a name. It keeps what it has
// looked up, so it belongs to one goroutine.
func (a *Application) Course(model string) Course {
	steps := *a.Steps[model]
	steps.cache = map[cacheKey]StepTime{}
	return Course{Profile: a.Profile, steps: &steps, training: a.Training}
}

// TrainingSetSize is the number of samples of an epoch at the smallest batch.
func (c Course) TrainingSetSize() int { return c.training.samplesPerEpoch() }

// End returns the progress at which an epoch (from 1) ends, in steps at the base batch; End(0) is 0.
func (c Course) End(epoch int) float64 { return c.training.ends[epoch] }

// Step returns the seconds of an optimizer step on a number of devices of each node, and the seconds of it in which
// gradients are exchanged.
func (c Course) Step(shape []int, b train.Batch) (step, exchange float64) {
	t := c.steps.At(shape, b.LocalBatch)
	return t.With(b.Accumulation), t.Sync
}

// Gain returns the progress of a step of some samples in an epoch (from 0).
func (c Course) Gain(samples, epoch int) float64 {
	return c.training.gain(samples, epoch, c.Limits.BaseBatch)
}

// Noise returns the squared norm of the mean gradient and the variance of single samples' gradients in an epoch (from
// 0), as training code reports them.
func (c Course) Noise(samples, epoch int) (square, variance float64) {
	square, variance = c.training.noise(samples, epoch)
	return square, variance * float64(c.Limits.BaseBatch)
}

// Adaptive returns the limits that a user of the application declares.
func (a *Application) Adaptive() *train.AdaptiveBatchSpec { return a.adaptive() }
