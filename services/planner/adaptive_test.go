package planner

import (
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// adaptive is a training whose code follows the batch of a plan and reports its gradient noise, which grows from epoch
// to epoch. A sample takes a millisecond, an exchange of gradients 30.
type adaptive struct {
	spec  train.Spec
	batch train.Batch
}

func adaptiveJob(name string, epochs int) *adaptive {
	return &adaptive{spec: train.Spec{
		Name: name, Tenant: "ann", Command: []string{"train"}, BatchSize: 64, GlobalBatchSize: 64, TrainingSetSize: 64_000, MaxEpochs: epochs,
		AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 2048, MaxPerDevice: 256}, MaxDevices: 4, Launch: train.LaunchPerDevice,
	}.WithDefaults()}
}

func (a *adaptive) Start() (sim.Training, error) { return &adaptive{spec: a.spec}, nil }

func (a *adaptive) Spec() train.Spec              { return a.spec }
func (a *adaptive) Epochs() int                   { return a.spec.MaxEpochs }
func (a *adaptive) End(epoch int) float64         { return 1000 * float64(epoch) }
func (a *adaptive) StartSeconds() float64         { return 30 }
func (a *adaptive) Lasts(seconds float64) float64 { return seconds }
func (a *adaptive) Opaque() bool                  { return false }
func (a *adaptive) AnyStep() bool                 { return false }
func (a *adaptive) BeatSteps(sim.Held) int        { return 1 }

func (a *adaptive) AloneSeconds([]train.Node, int) float64 { return 1 }

func (a *adaptive) Adjust(h sim.Held) {
	if a.batch = h.Batch; a.batch.LocalBatch == 0 && h.Devices() > 0 {
		a.batch = a.spec.Batch(h.Devices())
	}
}

func (a *adaptive) noise(epoch int) train.Efficiency {
	return train.Efficiency{Variance: float64(1 + epoch), Square: 1, BaseBatch: 64}
}

func (a *adaptive) step(h sim.Held) (step, sync float64) {
	if h.Devices() > 1 {
		sync = 0.03
	}
	return 0.001*float64(a.batch.LocalBatch*a.batch.Passes()) + sync, sync
}

func (a *adaptive) Goodput(h sim.Held) float64 {
	step, _ := a.step(h)
	return a.noise(h.Epoch).Gain(a.batch.Global(h.Devices())) / step
}

func (a *adaptive) Report(h sim.Held) event.Stepped {
	step, sync := a.step(h)
	n := a.noise(h.Epoch)
	return event.Stepped{StepSeconds: step, WaitSeconds: sync, Batch: a.batch, GradSquared: &n.Square, GradVariance: new(64 * n.Variance)}
}

func (a *adaptive) Ended(sim.Held) event.EpochEnded { return event.EpochEnded{} }
