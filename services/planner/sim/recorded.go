package sim

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Recorded is a job of a live cluster as its facts describe it.
type Recorded struct {
	Spec     train.Spec
	Priority int
	// Epochs is the number of epochs to train: those that it trained if it has ended, else those that it declared.
	Epochs int
	// Seen are the recorded epochs of this job, or of a job just like it.
	Seen []RecordedEpoch
	// Model is what a profiler learned from heartbeats; it counts where no epoch was recorded.
	Model *train.Model
	// RunSeconds is set instead of epochs for a job that says nothing of itself: it runs that long, whatever it
	// holds, and cannot be moved.
	RunSeconds float64
	// LeavesAtSteps is set if its code can save its state and leave after any step.
	LeavesAtSteps bool
	// StartSeconds is what each start costs: from the start to the first step, and from the last step to the end.
	StartSeconds float64
}

// RecordedEpoch is an ended epoch; Device is the model of the devices that it ran on.
type RecordedEpoch struct {
	curve.EpochRecord
	Device string
}

// Start makes the training of the job for one run.
func (r *Recorded) Start() (Training, error) {
	if !r.known() {
		return nil, errors.New("nothing tells how fast it is")
	}
	return newRecordedTraining(r), nil
}

// recordedTraining trains a recorded job: progress is in epochs.
type recordedTraining struct {
	*Recorded
	// own are the seconds of single epochs, means those of all epochs on a configuration.
	own   map[ownEpoch]float64
	means map[ranOn]float64
	// models are fitted to what ran on a model of device; "any" to everything.
	models map[string]train.Model
	any    train.Model
}

type ranOn struct {
	device string
	train.Config
}

type ownEpoch struct {
	ranOn
	epoch int
}

func newRecordedTraining(r *Recorded) *recordedTraining {
	c := &recordedTraining{Recorded: r, own: map[ownEpoch]float64{}, means: map[ranOn]float64{}, models: map[string]train.Model{}}
	byDevice := map[string][]curve.EpochRecord{}
	counts := map[ranOn]float64{}
	all := curve.History{Kind: train.SpeedAllReduce}
	for _, e := range r.Seen {
		on := ranOn{e.Device, e.Config}
		c.own[ownEpoch{on, e.Epoch}] = e.Seconds
		counts[on]++
		c.means[on] += (e.Seconds - c.means[on]) / counts[on]
		byDevice[e.Device] = append(byDevice[e.Device], e.EpochRecord)
		all.Epochs = append(all.Epochs, e.EpochRecord)
	}
	for device, epochs := range byDevice {
		c.models[device] = curve.Refit(curve.History{Kind: train.SpeedAllReduce, Epochs: epochs})
	}
	c.any = curve.Refit(all)
	if len(all.Epochs) == 0 && r.Model != nil {
		c.any = *r.Model
	}
	return c
}

// Spec is the submission, with the priority that the job had in the end.
func (c *recordedTraining) Spec() train.Spec {
	s := c.Recorded.Spec
	s.Priority = &c.Priority
	return s
}

// Epochs is 1 for a job that says nothing of itself.
func (c *recordedTraining) Epochs() int {
	if c.RunSeconds > 0 {
		return 1
	}
	return max(c.Recorded.Epochs, 1)
}

// End counts progress in epochs.
func (c *recordedTraining) End(epoch int) float64 { return float64(epoch) }

// StartSeconds is from the start to the first step, and from the last step to the end.
func (c *recordedTraining) StartSeconds() float64 { return c.Recorded.StartSeconds }

// Lasts is what was computed.
func (c *recordedTraining) Lasts(seconds float64) float64 { return seconds }

// Goodput is in epochs.
func (c *recordedTraining) Goodput(h Held) float64 {
	return 1 / c.epochSeconds(h.Model, c.config(h.Devices(), len(h.Shape)), h.Epoch+1)
}

// config keeps the batch per device as it was submitted.
func (c *recordedTraining) config(devices, nodes int) train.Config {
	return c.Recorded.Spec.On(max(devices, 1), max(nodes, 1))
}

func (c *recordedTraining) steps(cfg train.Config) float64 {
	return float64(c.Recorded.Spec.StepsPerEpoch(cfg.Workers))
}

// epochSeconds is what this very epoch took if it was seen on such devices, else the mean of those that were, else
// what the model of the job predicts from the configurations that were seen.
func (c *recordedTraining) epochSeconds(device string, cfg train.Config, epoch int) float64 {
	const shortest = 1e-3
	on := ranOn{device, cfg}
	if c.RunSeconds > 0 {
		return max(c.RunSeconds, shortest)
	}
	if seconds := c.own[ownEpoch{on, epoch}]; seconds > 0 {
		return max(seconds, shortest)
	}
	if seconds := c.means[on]; seconds > 0 {
		return max(seconds, shortest)
	}
	model, ran := c.models[device]
	if !ran {
		model = c.any
	}
	seconds, _ := model.EpochSecondsOn(cfg, c.steps)
	return max(seconds, shortest)
}

// Adjust has nothing to do: the batch stays as it was submitted.
func (c *recordedTraining) Adjust(Held) {}

// Opaque jobs say nothing of themselves.
func (c *recordedTraining) Opaque() bool { return c.RunSeconds > 0 }

// AnyStep is what its code has said.
func (c *recordedTraining) AnyStep() bool { return c.LeavesAtSteps }

// BeatSteps is 1: what a training lasts does not depend on it.
func (c *recordedTraining) BeatSteps(Held) int { return 1 }

// Report is the mean step of the epoch for code that leaves at steps, and so reports them; else it is empty: what was
// recorded are epochs.
func (c *recordedTraining) Report(h Held) event.Stepped {
	if !c.LeavesAtSteps {
		return event.Stepped{}
	}
	cfg := c.config(h.Devices(), len(h.Shape))
	return event.Stepped{StepSeconds: c.epochSeconds(h.Model, cfg, h.Epoch+1) / max(c.steps(cfg), 1)}
}

// Ended is what the epoch takes alone.
func (c *recordedTraining) Ended(h Held) event.EpochEnded {
	cfg := c.config(h.Devices(), len(h.Shape))
	return event.EpochEnded{EpochSeconds: c.epochSeconds(h.Model, cfg, h.Epoch), Steps: int(c.steps(cfg))}
}

// AloneSeconds is on one node, on as many of the devices as the job may have.
func (c *recordedTraining) AloneSeconds(nodes []train.Node, devices int) float64 {
	least := math.Inf(1)
	for _, n := range nodes {
		cfg := c.config(min(devices, len(n.Devices), cmp.Or(c.Recorded.Spec.MaxDevices, 1)), 1)
		sum := c.StartSeconds()
		for epoch := 1; epoch <= c.Epochs(); epoch++ {
			sum += c.epochSeconds(n.Devices[0].Model, cfg, epoch)
		}
		least = min(least, sum)
	}
	return least
}

// known says whether anything tells how fast the job is.
func (r *Recorded) known() bool {
	return r.RunSeconds > 0 || r.Model != nil && r.Model.Speed.Known() || slices.ContainsFunc(r.Seen, func(e RecordedEpoch) bool { return e.Seconds > 0 })
}
