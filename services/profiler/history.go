package profiler

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

// job is what was observed of one job that has not ended. It follows from the facts alone, so a restart computes the
// same.
type job struct {
	id      train.JobID
	spec    train.Spec
	history curve.History
	// live are the step times since the last ended epoch. They come from heartbeats, so a restart loses them.
	live []curve.StepSample

	attempt    int
	startedAt  time.Time // of the running attempt; zero between attempts
	ranSeconds float64   // of the ended attempts
	devices    int
	epochsDone int
	// epochAt is when the last epoch of this attempt ended; elapsed is how long the job had run by then.
	epochAt time.Time
	elapsed float64

	ended bool
	// published is the newest published estimate; nil before the first.
	published *event.Reestimated

	// batch is the number of samples per step of the running attempt on each device.
	batch int
	// node, held and servers are what the running attempt was given; paces is how fast its workers are.
	node    train.NodeID
	held    []train.DeviceID
	servers int
	paces   map[int]curve.WorkerPace
	// stragglers and converged have been published.
	stragglers []train.Straggler
	converged  bool
	// borrowed are step times of jobs with the same signature, for configurations that this one has not run on.
	borrowed []curve.StepSample
	// peaks is the memory that jobs of the same family needed.
	peaks []curve.MemoryPoint
}

func newJob(id train.JobID, spec train.Spec) *job {
	return &job{id: id, spec: spec, devices: max(spec.MinDevices, 1), history: curve.History{Job: string(id), Kind: spec.SpeedKind(), BaseBatch: spec.BatchSize}}
}

// config returns the job's configuration on a number of devices of one node. The number of servers is unknown until
// the start of the attempt is published.
func (j *job) config(attempt, devices int) train.Config {
	c := train.Config{Workers: max(devices, 1), Nodes: 1, LocalBatch: j.spec.BatchSize}
	if attempt == j.attempt {
		c.Servers = j.servers
		c.LocalBatch = cmp.Or(j.batch, c.LocalBatch)
	}
	return c
}

func (j *job) stepsIn(c train.Config) float64 {
	spec := j.spec
	spec.BatchSize = c.LocalBatch
	return spec.StepsIn(c)
}

// settleServers sets the number of servers in epochs that arrived before the start of their attempt. Epochs come from
// the job's code and starts from the executor, and an epoch may be short.
func (j *job) settleServers(servers int) {
	for i := range j.history.Epochs {
		if c := &j.history.Epochs[i].Config; c.Servers == 0 {
			c.Servers = servers
		}
	}
	for i := range j.history.Steps {
		if c := &j.history.Steps[i].Config; c.Servers == 0 {
			c.Servers = servers
		}
	}
	j.history.Steps = folded(j.history.Steps)
}

// apply applies a fact that is neither an epoch nor the end of the job.
func (j *job) apply(at time.Time, body any) {
	switch b := body.(type) {
	case *event.Tuned:
		j.tuned(b)
	case *event.Started:
		j.started(at, b)
	case *event.Preempted:
		j.attemptEnded(at, b.Attempt)
	case *event.AttemptLost:
		j.attemptEnded(at, b.Attempt)
	case *event.Reestimated:
		j.published = b
	case *event.Straggling:
		j.straggled(b.Straggler)
	case *event.Converged:
		j.converged = true
	}
}

// tuned records the batch size that the job got before its first attempt.
func (j *job) tuned(b *event.Tuned) {
	if b.BatchSize > 0 {
		j.spec.BatchSize, j.history.BaseBatch = b.BatchSize, b.BatchSize
	}
}

func (j *job) started(at time.Time, b *event.Started) {
	if b.Attempt <= j.attempt {
		return
	}
	j.attempt, j.startedAt, j.epochAt = b.Attempt, at, time.Time{}
	j.devices = max(len(b.Devices), 1)
	j.node, j.held, j.servers, j.batch = b.Node, b.Devices, b.Servers, b.BatchSize
	j.live, j.paces = nil, nil
	j.settleServers(b.Servers)
}

func (j *job) attemptEnded(at time.Time, attempt int) {
	if attempt < j.attempt || j.startedAt.IsZero() {
		return
	}
	j.ranSeconds += math.Max(at.Sub(j.startedAt).Seconds(), 0)
	j.startedAt, j.epochAt, j.live, j.paces = time.Time{}, time.Time{}, nil, nil
}

// epochEnded adds an epoch; it returns false if the epoch is known already.
func (j *job) epochEnded(at time.Time, b *event.EpochEnded) bool {
	if b.EpochsDone <= j.epochsDone {
		return false
	}
	devices := b.Devices
	if devices < 1 {
		devices = j.devices
	}
	record := curve.EpochRecord{
		Epoch: b.EpochsDone, Seconds: b.EpochSeconds, Config: j.config(b.Attempt, devices), Steps: b.Steps,
		Loss: deref(b.Loss), GradSqr: deref(b.GradSquared), GradVar: deref(b.GradVariance),
	}
	if record.Seconds <= 0 {
		record.Seconds = j.sinceLastEpoch(at, b)
	}
	if record.Steps < 1 || j.history.Kind == train.SpeedServersAsync {
		record.Steps = int(j.stepsIn(record.Config))
	}
	j.history.Epochs = thin(append(j.history.Epochs, record))
	// The epoch's own mean covers the heartbeats since the previous epoch.
	if b.StepSeconds > 0 {
		j.live = []curve.StepSample{{Config: record.Config, StepSeconds: j.stepOfJob(b.StepSeconds, devices), Weight: float64(record.Steps)}}
	}
	j.history.Steps, j.live = folded(append(j.history.Steps, j.live...)), nil
	j.remember(b.MemoryBytes)
	j.epochsDone, j.epochAt, j.elapsed = b.EpochsDone, at, j.ranSeconds
	if !j.startedAt.IsZero() {
		j.elapsed += math.Max(at.Sub(j.startedAt).Seconds(), 0)
	}
	return true
}

// sinceLastEpoch estimates a duration that the job does not report; 0 if it cannot be known.
func (j *job) sinceLastEpoch(at time.Time, b *event.EpochEnded) float64 {
	from := j.epochAt
	if from.IsZero() {
		from = j.startedAt
	}
	if from.IsZero() || b.Attempt != j.attempt || b.EpochsDone != j.epochsDone+1 {
		return 0
	}
	return math.Max(at.Sub(from).Seconds(), 0)
}

// stepped adds a heartbeat; it returns false if the heartbeat is of no use.
func (j *job) stepped(b event.Stepped) bool {
	if b.Attempt != j.attempt || j.startedAt.IsZero() || !(b.StepSeconds > 0) {
		return false
	}
	devices := b.Devices
	if devices < 1 {
		devices = j.devices
	}
	sample := curve.StepSample{Config: j.config(b.Attempt, devices), StepSeconds: j.stepOfJob(b.StepSeconds, devices), Weight: float64(max(b.Steps, 1))}
	j.live = folded(append(j.live, sample))
	j.remember(b.MemoryBytes)
	j.observePace(b)
	return true
}

// stepOfJob returns the time between two steps of the whole job if each process reports its own: asynchronous workers
// do not step together.
func (j *job) stepOfJob(seconds float64, workers int) float64 {
	if j.history.Kind == train.SpeedServersAsync && j.spec.Launch == train.LaunchPerDevice {
		return seconds / float64(max(workers, 1))
	}
	return seconds
}

// remember keeps the peak of the device memory with the submitted batch.
func (j *job) remember(peak unit.Bytes) {
	switch {
	case peak <= 0 || j.batch > 0:
	case len(j.history.Memory) == 0:
		j.history.Memory = []curve.MemoryPoint{{LocalBatch: j.spec.BatchSize, Bytes: float64(peak)}}
	default:
		j.history.Memory[0].Bytes = math.Max(j.history.Memory[0].Bytes, float64(peak))
	}
}

func (j *job) model() train.Model {
	h := j.history
	h.Steps = folded(slices.Concat(h.Steps, j.live))
	h.Memory = slices.Concat(h.Memory, j.peaks)
	m := curve.Refit(h.With(j.borrowed))
	m.Stragglers = j.stragglers
	return m
}

// estimate returns the run time as of the end of the last epoch. It returns false before one has ended, or if the
// speed is unknown.
func (j *job) estimate(m train.Model) (event.Reestimated, bool) {
	left, known := m.RemainingSeconds(j.config(j.attempt, j.devices), float64(j.epochsDone), j.spec.StopRule(), j.stepsIn)
	if !known || j.epochsDone < 1 {
		return event.Reestimated{}, false
	}
	declared := j.spec.EstimatedHours * 3600
	e := curve.CorrectEstimate(declared, j.elapsed, left, j.epochsDone)
	r := event.Reestimated{
		EpochsDone: j.epochsDone, TotalSeconds: e.Seconds,
		RemainingSeconds: left.Expected, RemainingLowSeconds: left.Low, RemainingHighSeconds: left.High,
		PriorityPenalty: e.LostSteps(),
	}
	if e.Overrun {
		r.Warning = fmt.Sprintf("will run for about %.1f h, %.0f %% more than the %.4g h that were estimated: its priority is lowered by %d",
			e.Seconds/3600, 100*(e.Ratio-1), j.spec.EstimatedHours, r.PriorityPenalty)
	}
	return r, true
}

// worthPublishing is the relative change of the total below which an estimate is not published.
const worthPublishing = 0.05

// differs reports whether an estimate says something that the published one does not.
func (j *job) differs(r event.Reestimated) bool {
	if j.published == nil || j.published.PriorityPenalty != r.PriorityPenalty {
		return true
	}
	return math.Abs(r.TotalSeconds-j.published.TotalSeconds) > worthPublishing*j.published.TotalSeconds
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
