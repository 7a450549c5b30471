// Package traces replays workloads on measured step times and trainings, in the simulator of the live planner
// (services/planner/sim). Its semantics are those of the simulators published with Pollux (OSDI'21) and Sia
// (SOSP'23), so that results compare to the second. It opens no file: the caller hands in the traces.
package traces

import (
	"cmp"
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// Profile holds what the user of an application declares.
type Profile struct {
	Name   string
	Epochs int
	// Limits bound its batch sizes.
	Limits plan.Limits
	// OneDevice says that more devices are of no use, as Optimus and Pollux were configured.
	OneDevice bool
	// RestartSeconds is the price of a start and Slowdown the factor on step times under TypedRules.
	RestartSeconds, Slowdown float64
}

// Profiles are the applications of the published traces.
func Profiles() []Profile {
	return []Profile{
		{Name: "bert", Epochs: 2, Limits: plan.Limits{BaseBatch: 12, MaxBatch: 384, MinLocal: 4, MaxLocal: 12}, RestartSeconds: 120, Slowdown: 1.2},
		{Name: "cifar10", Epochs: 100, Limits: plan.Limits{BaseBatch: 128, MaxBatch: 4096, MinLocal: 32, MaxLocal: 1024}, RestartSeconds: 50, Slowdown: 1.8},
		{Name: "ncf", Epochs: 10, Limits: plan.Limits{BaseBatch: 256, MaxBatch: 32768, MinLocal: 32, MaxLocal: 32768}, OneDevice: true, RestartSeconds: 15, Slowdown: 1.5},
		{Name: "imagenet", Epochs: 90, Limits: plan.Limits{BaseBatch: 200, MaxBatch: 12800, MinLocal: 20, MaxLocal: 200}, RestartSeconds: 250, Slowdown: 1.2},
		{Name: "deepspeech2", Epochs: 80, Limits: plan.Limits{BaseBatch: 20, MaxBatch: 640, MinLocal: 10, MaxLocal: 80}, RestartSeconds: 25, Slowdown: 1.2},
		{Name: "yolov3", Epochs: 50, Limits: plan.Limits{BaseBatch: 8, MaxBatch: 512, MinLocal: 4, MaxLocal: 8}, RestartSeconds: 80, Slowdown: 1.2},
	}
}

// Application is a profile with its measurements.
type Application struct {
	Profile
	// Steps are the step times by model of device.
	Steps    map[string]*StepTimes
	Training Training
}

// adaptive are the limits of the profile as a user declares them, with the largest batch that fits on each model of
// device. The profile is for the devices of the untyped traces; on others the largest measured batch fits.
func (a *Application) adaptive() *train.AdaptiveBatchSpec {
	s := &train.AdaptiveBatchSpec{Max: a.Limits.MaxBatch, MinPerDevice: a.Limits.MinLocal, MaxPerDevice: a.Limits.MaxLocal, MaxPerDeviceOn: map[string]int{}}
	for model, steps := range a.Steps {
		if model != "" && model != profiledModel {
			s.MaxPerDeviceOn[model] = steps.largestBatch()
		}
	}
	return s
}

// limitsOn are the limits on a model of device.
func (a *Application) limitsOn(model string) plan.Limits {
	l := a.Limits
	l.MaxLocal = cmp.Or(a.adaptive().MaxPerDeviceOn[model], l.MaxLocal)
	return l
}

// profiledModel is the name, in typed traces, of the devices of the untyped ones.
const profiledModel = "aws"

// split spreads a fixed batch over a number of devices: the fewest passes that fit, and at least two on one device
// for more than the base batch, since the gradient noise cannot be measured from one pass alone.
func split(batch, devices int, l plan.Limits) train.Batch {
	local := ceil(float64(batch) / float64(devices))
	more := ceil(float64(local)/float64(l.MaxLocal)) - 1
	if devices == 1 && batch > l.BaseBatch {
		more = max(more, 1)
	}
	return bound(train.Batch{LocalBatch: ceil(float64(local) / float64(more+1)), Accumulation: more}, devices, l)
}

// bound keeps the global batch below the largest.
func bound(b train.Batch, devices int, l plan.Limits) train.Batch {
	b.LocalBatch = max(min(b.LocalBatch, l.MaxBatch/(devices*(b.Accumulation+1))), 1)
	return b
}

// ceil rounds up, but not for the sake of a rounding error.
func ceil(x float64) int { return int(math.Ceil(x - 1e-8)) }
