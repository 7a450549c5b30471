// Package learn folds the facts and heartbeats of one job into its model: how fast it is, when it ends, which workers
// are slow, and whether its loss has converged. It reads no clock and does no I/O.
package learn

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Bounds on what is kept of one job: beyond maxEpochRecords, every second epoch before the newest recentEpochs is
// dropped.
const (
	maxEpochRecords = 600
	recentEpochs    = 200
)

// Job is what was observed of one job that has not ended. It follows from the facts alone, so a restart computes the
// same, apart from what only heartbeats show.
type Job struct {
	ID      train.JobID
	Spec    train.Spec
	History curve.History
	// Borrowed are step times of jobs of the same family, for configurations that this one has not run on. Kin is how
	// long whole runs of the family took, Peaks the memory that jobs of the same program needed.
	Borrowed []curve.StepSample
	Kin      *train.Kin
	Peaks    []curve.MemoryPoint
	Ended    bool
	// Published is the newest published estimate; nil before the first. HasConverged says that this was published.
	Published    *event.Reestimated
	HasConverged bool
	// Since is the attempt that began the training from scratch, after another had lost all; 0 if none did.
	Since int

	// deviceOf describes a device.
	deviceOf func(train.NodeID, train.DeviceID) train.Device
	// live are the step times since the last ended epoch.
	live []curve.StepSample

	attempt    int
	startedAt  time.Time // of the running attempt; zero between attempts
	ranSeconds float64   // of the ended attempts
	devices    int
	epochsDone int
	// epochAt is when the last epoch of this attempt ended; elapsed is how long the job had run by then.
	epochAt time.Time
	elapsed float64

	// batch is the number of samples per step of the running attempt on each device.
	batch int
	// latest is the batch of the last epoch of the running attempt, as its code reported it.
	latest train.Batch
	// places and servers are what the running attempt was given, with the one model of its devices; paces is how fast its
	// workers are.
	places  []train.Part
	device  string
	servers int
	paces   map[int]curve.WorkerPace
	// stragglers have been published.
	stragglers []train.Straggler

	// ran are the measured configurations, noise the gradient noise of late, noiseBefore that of the stretch before.
	ran                []ran
	noise, noiseBefore noise
	// progress is in steps at the base batch, saved what it was at the end of the last epoch. heard is set if heartbeats
	// have reported steps since then.
	progress, saved float64
	heard           bool
	// startSeconds is the mean price of a start. begun says that the running attempt has paid it.
	startSeconds, starts float64
	begun                bool
}

// New begins with an admitted job. deviceOf describes a device; the zero value if it is unknown.
func New(id train.JobID, spec train.Spec, deviceOf func(train.NodeID, train.DeviceID) train.Device) *Job {
	return &Job{
		ID: id, Spec: spec, devices: max(spec.MinDevices, 1), deviceOf: deviceOf, History: curve.History{Job: string(id), Kind: spec.SpeedKind()},
	}
}

// config returns the job's configuration on a number of devices, with the batch that its code reports. The number of
// servers is unknown until the start of the attempt is published.
func (j *Job) config(attempt, devices int, ran train.Batch) train.Config {
	c := j.Spec.On(max(devices, 1), 1)
	if attempt == j.attempt {
		c.Nodes = max(len(j.places), 1)
		c.Servers = j.servers
		c.LocalBatch = cmp.Or(j.batch, c.LocalBatch)
	}
	c.LocalBatch = cmp.Or(ran.LocalBatch, c.LocalBatch)
	return c
}

// stepsIn returns the number of steps of an epoch, in the unit of the speed model: passes.
func (j *Job) stepsIn(c train.Config) float64 {
	spec := j.Spec
	spec.BatchSize = c.LocalBatch
	return spec.StepsIn(c)
}

// settleServers sets the number of servers in epochs that arrived before the start of their attempt. Epochs come from
// the job's code and starts from the executor, and an epoch may be short.
func (j *Job) settleServers(servers int) {
	for i := range j.History.Epochs {
		if c := &j.History.Epochs[i].Config; c.Servers == 0 {
			c.Servers = servers
		}
	}
	for i := range j.History.Steps {
		if c := &j.History.Steps[i].Config; c.Servers == 0 {
			c.Servers = servers
		}
	}
	j.History.Steps = folded(j.History.Steps)
}

// Take takes a fact; it returns true for an epoch that is not known already.
func (j *Job) Take(at time.Time, body any) bool {
	switch b := body.(type) {
	case *event.EpochEnded:
		return j.epochEnded(at, b)
	case *event.Tuned:
		j.tuned(b)
	case *event.Started:
		j.started(at, b)
	case *event.Preempted:
		j.attemptEnded(at, b.Attempt)
	case *event.AttemptLost:
		j.attemptEnded(at, b.Attempt)
	case *event.Succeeded:
		j.attemptEnded(at, j.attempt)
	case *event.Reestimated:
		j.Published = b
	case *event.CheckpointWritten:
		if b.EpochStep > 0 && b.Attempt == j.attempt { // the next attempt goes on from here
			j.saved = j.progress
		}
	case *event.Straggling:
		j.Straggled(b.Straggler)
	case *event.Converged:
		j.HasConverged = true
	}
	return false
}

// tuned records the batch size that the job got before its first attempt.
func (j *Job) tuned(b *event.Tuned) {
	if b.BatchSize > 0 {
		j.Spec = j.Spec.WithBatchSize(b.BatchSize)
	}
}

// Attempt is the newest attempt that has started.
func (j *Job) Attempt() int { return j.attempt }

func (j *Job) started(at time.Time, b *event.Started) {
	if b.Attempt <= j.attempt {
		return
	}
	j.attempt, j.startedAt, j.epochAt = b.Attempt, at, time.Time{}
	j.epochsDone = max(j.epochsDone, b.EpochsDone)
	if b.FromScratch {
		j.beginAgain()
	}
	j.devices = max(len(b.Devices), 1)
	j.places, j.servers, j.batch = b.Places(), b.Servers, b.BatchSize
	j.keepSteps()
	j.paces, j.device, j.latest = nil, "", train.Batch{}
	if len(b.Devices) > 0 {
		device := j.deviceOf(b.Node, b.Devices[0])
		j.device, j.History.On = device.Model, curve.PriorOn(device)
	}
	j.progress, j.begun, j.heard = j.saved, false, false
	j.settleServers(b.Servers)
}

// beginAgain forgets how far the training was. Its speed stays known.
func (j *Job) beginAgain() {
	j.Since, j.epochsDone, j.saved, j.HasConverged = j.attempt, 0, 0, false
	j.noise, j.noiseBefore = noise{}, noise{}
	for i := range j.History.Epochs {
		j.History.Epochs[i].Loss = 0
	}
}

// attemptEnded closes the running attempt.
func (j *Job) attemptEnded(at time.Time, attempt int) {
	if attempt < j.attempt || j.startedAt.IsZero() {
		return
	}
	j.ranSeconds += math.Max(at.Sub(j.startedAt).Seconds(), 0)
	j.keepSteps()
	j.startedAt, j.epochAt, j.paces = time.Time{}, time.Time{}, nil
}

// keepSteps keeps the step times since the last epoch's end: they count even if their epoch never ends there.
func (j *Job) keepSteps() {
	j.History.Steps, j.live = folded(append(j.History.Steps, j.live...)), nil
}

// epochEnded adds an epoch; it returns false if the epoch is known already, or of a training that was lost.
func (j *Job) epochEnded(at time.Time, b *event.EpochEnded) bool {
	if b.EpochsDone <= j.epochsDone || b.Attempt < j.Since {
		return false
	}
	devices := b.Devices
	if devices < 1 {
		devices = j.devices
	}
	if b.BatchIgnored {
		j.Spec = j.Spec.WithOwnBatch(b.Batch.LocalBatch)
	}
	record := curve.EpochRecord{
		Epoch: b.EpochsDone, Seconds: b.EpochSeconds, Config: j.config(b.Attempt, devices, b.Batch), Steps: b.Steps * b.Batch.Passes(),
		Loss: deref(b.Loss),
	}
	if record.Seconds <= 0 {
		record.Seconds = j.sinceLastEpoch(at, b)
	}
	if record.Steps < 1 || j.History.Kind == train.SpeedServersAsync {
		record.Steps = int(j.stepsIn(record.Config))
	}
	j.History.Epochs = thin(append(j.History.Epochs, record))
	if !j.heard {
		j.observeStart(at, record.Seconds)
		global := j.ranBatch(b.Batch, record.Config.Workers).Global(record.Config.Workers)
		j.observeNoise(b.GradSquared, b.GradVariance, record.Seconds, global)
		j.advance(record.Steps/b.Batch.Passes(), global)
	}
	j.saved, j.heard, j.latest = j.progress, false, b.Batch
	// The epoch's own mean covers the heartbeats since the previous epoch.
	if b.StepSeconds > 0 {
		j.live = []curve.StepSample{{Config: record.Config, StepSeconds: j.stepOfJob(b.StepSeconds, devices) / float64(b.Batch.Passes()), Weight: float64(record.Steps)}}
	}
	j.keepSteps()
	j.remember(b.MemoryBytes)
	j.epochsDone, j.epochAt, j.elapsed = b.EpochsDone, at, j.ranSeconds
	if !j.startedAt.IsZero() {
		j.elapsed += math.Max(at.Sub(j.startedAt).Seconds(), 0)
	}
	return true
}

// sinceLastEpoch estimates a duration that the job does not report; 0 if it cannot be known.
func (j *Job) sinceLastEpoch(at time.Time, b *event.EpochEnded) float64 {
	from := j.epochAt
	if from.IsZero() {
		from = j.startedAt
	}
	if from.IsZero() || b.Attempt != j.attempt || b.EpochsDone != j.epochsDone+1 {
		return 0
	}
	return math.Max(at.Sub(from).Seconds(), 0)
}

// Stepped adds a heartbeat; it returns false if the heartbeat is of no use.
func (j *Job) Stepped(at time.Time, b event.Stepped) bool {
	if b.Attempt != j.attempt || j.startedAt.IsZero() || !(b.StepSeconds > 0) {
		return false
	}
	devices := b.Devices
	if devices < 1 {
		devices = j.devices
	}
	sample := curve.StepSample{
		Config: j.config(b.Attempt, devices, b.Batch), StepSeconds: j.stepOfJob(b.StepSeconds, devices) / float64(b.Batch.Passes()),
		Weight: float64(max(b.Steps, 1)),
	}
	j.live = folded(append(j.live, sample))
	j.remember(b.MemoryBytes)
	j.observePace(b)
	if b.Rank == 0 {
		ran := j.ranBatch(b.Batch, sample.Workers)
		j.observeStart(at, b.StepSeconds*float64(max(b.Steps, 1)))
		j.observeRan(b, sample.Config, ran.Passes())
		global := ran.Global(sample.Workers)
		j.observeNoise(b.GradSquared, b.GradVariance, b.StepSeconds*float64(max(b.Steps, 1)), global)
		j.advance(b.Steps, global)
		j.heard = true
	}
	return true
}

// stepOfJob returns the time between two steps of the whole job if each process reports its own: asynchronous workers
// do not step together.
func (j *Job) stepOfJob(seconds float64, workers int) float64 {
	if j.History.Kind == train.SpeedServersAsync && j.Spec.Launch == train.LaunchPerDevice {
		return seconds / float64(max(workers, 1))
	}
	return seconds
}

// remember keeps the peak of the device memory with the submitted batch.
func (j *Job) remember(peak unit.Bytes) {
	switch {
	case peak <= 0 || j.batch > 0:
	case len(j.History.Memory) == 0:
		j.History.Memory = []curve.MemoryPoint{{LocalBatch: j.Spec.BatchSize, Bytes: float64(peak)}}
	default:
		j.History.Memory[0].Bytes = math.Max(j.History.Memory[0].Bytes, float64(peak))
	}
}

// Model fits a model to the history.
func (j *Job) Model() train.Model {
	h := j.History
	h.Steps = folded(slices.Concat(h.Steps, j.live))
	h.Memory = slices.Concat(h.Memory, j.Peaks)
	m := curve.Refit(h.With(j.Borrowed))
	m.Stragglers, m.Progress, m.StartSeconds, m.Kin = j.stragglers, j.progress, j.startSeconds, j.Kin
	for _, r := range j.ran {
		m.Ran = append(m.Ran, r.Ran)
	}
	if e := j.efficiency(); e.Variance+e.Square > 0 {
		m.Efficiency = &e
	}
	return m
}

// Estimate returns the run time as of the end of the last epoch. It returns false before one has ended, or if the
// speed is unknown.
func (j *Job) Estimate(m train.Model) (event.Reestimated, bool) {
	left, known := m.RemainingSeconds(j.config(j.attempt, j.devices, j.latest), float64(j.epochsDone), j.Spec.StopRule(), j.stepsIn)
	if !known || j.epochsDone < 1 || j.Spec.Epochs() == 0 {
		return event.Reestimated{}, false
	}
	declared := j.Spec.EstimatedHours * 3600
	e := curve.CorrectEstimate(declared, j.elapsed, left, j.epochsDone)
	r := event.Reestimated{
		EpochsDone: j.epochsDone, TotalSeconds: e.Seconds,
		RemainingSeconds: left.Expected, RemainingLowSeconds: left.Low, RemainingHighSeconds: left.High,
		PriorityPenalty: e.LostSteps(),
	}
	if e.Overrun {
		r.Warning = fmt.Sprintf("will run for about %.1f h, %.0f %% more than the %.4g h that were estimated: its priority is lowered by %d",
			e.Seconds/3600, 100*(e.Ratio-1), j.Spec.EstimatedHours, r.PriorityPenalty)
	}
	return r, true
}

// worthPublishing is the relative change of the total below which an estimate is not published.
const worthPublishing = 0.05

// Differs reports whether an estimate says something that the published one does not.
func (j *Job) Differs(r event.Reestimated) bool {
	if j.Published == nil || j.Published.PriorityPenalty != r.PriorityPenalty {
		return true
	}
	return math.Abs(r.TotalSeconds-j.Published.TotalSeconds) > worthPublishing*j.Published.TotalSeconds
}

// thin bounds the kept epochs: of the old ones, which a curve needs least, every second one is dropped.
func thin(epochs []curve.EpochRecord) []curve.EpochRecord {
	if len(epochs) <= maxEpochRecords {
		return epochs
	}
	kept := make([]curve.EpochRecord, 0, maxEpochRecords)
	old := len(epochs) - recentEpochs
	for i, e := range epochs {
		if i >= old || i%2 == 0 {
			kept = append(kept, e)
		}
	}
	return kept
}

// folded merges samples into one for each configuration.
func folded(samples []curve.StepSample) []curve.StepSample {
	measured := curve.Fold(samples)
	kept := make([]curve.StepSample, len(measured))
	for i, m := range measured {
		kept[i] = curve.StepSample(m)
	}
	return kept
}

func deref(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}
