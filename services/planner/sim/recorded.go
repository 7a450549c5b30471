package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// Recorded is a job of a live cluster as its facts tell of it.
type Recorded struct {
	Spec     train.Spec
	Priority int
	// Epochs is how many it trains: those that it did if it has ended, else those that it declared.
	Epochs int
	// Seen are the epochs that were recorded, of this job or of one just like it.
	Seen []RecordedEpoch
	// Model is what a profiler learned from heartbeats; it counts where no epoch was recorded.
	Model *train.Model
	// RunSeconds is set instead of epochs for a job that says nothing of itself: it runs that long, whatever it holds, and cannot be moved.
	RunSeconds float64
	// StartSeconds is what each start costs: from the start to the first step, and from the last step to the end.
	StartSeconds float64
}

// RecordedEpoch is an ended epoch; Device is the model of the devices that it ran on.
type RecordedEpoch struct {
	curve.EpochRecord
	Device string
}

// recordedCourse trains a recorded job: progress is in epochs.
type recordedCourse struct {
	*Recorded
	// own are the seconds of single epochs, means those of all epochs on a configuration.
	own   map[ownEpoch]float64
	means map[ranOn]float64
	// models are fitted to what ran on a model of device; "any" to everything.
	models map[string]train.Model
	any    train.Model

	// history is what the job has shown in this simulation, learned the model of it.
	history curve.History
	learned train.Model
	fresh   bool
	// lent are the step times that earlier jobs of its signature taught, as they were when it came (met).
	lent []curve.StepSample
	met  bool
}

type ranOn struct {
	device string
	train.Config
}

type ownEpoch struct {
	ranOn
	epoch int
}

func newRecordedCourse(r *Recorded) *recordedCourse {
	c := &recordedCourse{
		Recorded: r, own: map[ownEpoch]float64{}, means: map[ranOn]float64{}, models: map[string]train.Model{},
		history: curve.History{Kind: train.SpeedAllReduce, BaseBatch: r.Spec.BatchSize},
	}
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

func (c *recordedCourse) epochs() int {
	if c.RunSeconds > 0 {
		return 1
	}
	return max(c.Epochs, 1)
}

func (c *recordedCourse) end(epoch int) float64 { return float64(epoch) }

// teach lets later jobs of the signature know what this one, which has ended, has shown.
func (c *recordedCourse) teach(w *world, j *job) {
	c.adjust(j, nil) // its last epoch
	w.taught.Add(c.Spec.Signature(), c.history)
}

func (c *recordedCourse) lasts(seconds float64) float64 { return seconds }

func (c *recordedCourse) goodput(j *job) float64 {
	return 1 / c.epochSeconds(j.model, c.config(j.devices(), len(j.shape)), j.epoch+1)
}

// config keeps the batch per device as it was submitted.
func (c *recordedCourse) config(devices, nodes int) train.Config {
	return train.Config{Workers: max(devices, 1), Nodes: max(nodes, 1), LocalBatch: c.Spec.BatchSize}
}

func (c *recordedCourse) steps(cfg train.Config) float64 {
	return float64(c.Spec.StepsPerEpoch(cfg.Workers))
}

// epochSeconds is what this very epoch took if it was seen on such devices, else the mean of those that were, else what the model of the job predicts
// from the configurations that were seen.
func (c *recordedCourse) epochSeconds(device string, cfg train.Config, epoch int) float64 {
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

// adjust notes an epoch that has just ended; the batch stays as it was submitted.
func (c *recordedCourse) adjust(j *job, _ tuner) {
	if c.RunSeconds > 0 || len(j.shape) == 0 || len(c.history.Epochs) > 0 && c.history.Epochs[len(c.history.Epochs)-1].Epoch >= j.epoch || j.epoch == 0 {
		return
	}
	cfg := c.config(j.devices(), len(j.shape))
	c.history.Epochs = append(c.history.Epochs, curve.EpochRecord{
		Epoch: j.epoch, Seconds: c.epochSeconds(j.model, cfg, j.epoch), Config: cfg, Steps: int(c.steps(cfg)),
	})
	if len(c.history.Epochs) > mostEpochs {
		c.history.Epochs = slices.Delete(c.history.Epochs, 0, mostEpochs/2)
	}
	c.fresh = true
}

// mostEpochs bounds what a job is fitted to, as the profiler bounds it.
const mostEpochs = 600

// observe is what the live planner is told: the model that the profiler would have fitted by now.
func (c *recordedCourse) observe(w *world, j *job) plan.Job {
	if !c.met {
		c.met, c.lent = true, w.taught.Of(c.Spec.Signature())
		c.fresh = len(c.lent) > 0
	}
	if c.fresh {
		c.learned, c.fresh = curve.Refit(c.history.With(c.lent)), false
	}
	j.left = slices.DeleteFunc(j.left, func(seconds float64) bool { return w.now-seconds >= time.Hour.Seconds() })
	o := plan.Job{
		ID: j.Name, Spec: c.Spec, Priority: c.Priority, SubmittedAt: at(j.Seconds), RunSeconds: j.worked, Restarts: max(j.starts-1, 0),
		RecentRestarts: len(j.left), DeviceSeconds: j.deviceSeconds,
	}
	if c.RunSeconds == 0 {
		o.EpochsDone = j.epoch
	}
	if len(c.history.Epochs)+len(c.lent) > 0 {
		m := c.learned
		o.Model = &m
	}
	o.Planned = j.planned
	if len(j.parts) > 0 {
		o.Running = &plan.Running{
			Holding: holding(j.parts), StopPending: j.leaving, Seconds: w.now - j.startedAt, Epochs: j.epoch - j.startedEpoch,
			// What starts has not called yet.
			Spoke: c.RunSeconds == 0 && j.rescale <= 0,
		}
	}
	return o
}

// alone is on one node, on as many of the devices as the job may have.
func (c *recordedCourse) alone(w *world, _ *job, devices int) float64 {
	least := math.Inf(1)
	for _, n := range w.nodes {
		cfg := c.config(min(devices, len(n.Devices), cmp.Or(c.Spec.MaxDevices, 1)), 1)
		sum := c.StartSeconds
		for epoch := 1; epoch <= c.epochs(); epoch++ {
			sum += c.epochSeconds(w.models[n.ID], cfg, epoch)
		}
		least = min(least, sum)
	}
	return least
}

// known says whether anything tells how fast the job is.
func (r *Recorded) known() bool {
	return r.RunSeconds > 0 || r.Model != nil && r.Model.Speed.Known() || slices.ContainsFunc(r.Seen, func(e RecordedEpoch) bool { return e.Seconds > 0 })
}
