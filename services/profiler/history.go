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

// Bounds of what is kept of one job: beyond maxEpochRecords every second one of those before the newest recentEpochs goes.
const (
	maxEpochRecords = 600
	recentEpochs    = 200
)

// job is what was observed of one job that has not ended. It follows from the facts alone, so a restart finds the same.
type job struct {
	id      train.JobID
	spec    train.Spec
	history curve.History
	// live are the step times since the last ended epoch; they are heartbeats, so after a restart they are gone.
	live []curve.StepSample

	attempt    int
	startedAt  time.Time // of the attempt that runs; zero between attempts
	ranSeconds float64   // of the attempts that have ended
	devices    int
	epochsDone int
	// epochAt is when the last epoch of this attempt ended; elapsed is how long the job had run by then.
	epochAt time.Time
	elapsed float64

	ended bool
	// told is the newest estimate that was published; nil before the first.
	told *event.Reestimated

	// batch is how many samples a step of the attempt that runs has on each device.
	batch int
	// node, held and servers are what the attempt that runs was given; paces how fast its workers are.
	node    train.NodeID
	held    []train.DeviceID
	servers int
	paces   map[int]curve.WorkerPace
	// stragglers and converged were published.
	stragglers []train.Straggler
	converged  bool
	// lent are step times of jobs with the same signature, for configurations that this one has not run on.
	lent []curve.StepSample
	// peaks is the memory that jobs of the same family have needed.
	peaks []curve.MemoryPoint
}

func newJob(id train.JobID, spec train.Spec) *job {
	return &job{id: id, spec: spec, devices: max(spec.MinDevices, 1), history: curve.History{Job: string(id), Kind: spec.SpeedKind(), BaseBatch: spec.BatchSize}}
}

// config is the job's configuration on so many devices; one node holds them all. How many servers an attempt has is open until its start is told.
func (j *job) config(attempt, devices int) train.Config {
	c := train.Config{Workers: max(devices, 1), Nodes: 1, LocalBatch: j.spec.BatchSize}
	if attempt == j.attempt {
		c.Servers = j.servers
		c.LocalBatch = cmp.Or(j.batch, c.LocalBatch)
	}
	return c
}

// stepsIn is the number of steps of an epoch.
func (j *job) stepsIn(c train.Config) float64 {
	spec := j.spec
	spec.BatchSize = c.LocalBatch
	return spec.StepsIn(c)
}

// settleServers says how many servers there were in epochs that were told before the start of their attempt: the one comes from the job's code, the other from
// the executor, and an epoch may be short.
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

// tuned notes the batch size that the job got before its first attempt.
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

// left closes the attempt that runs.
func (j *job) left(at time.Time, attempt int) {
	if attempt < j.attempt || j.startedAt.IsZero() {
		return
	}
	j.ranSeconds += math.Max(at.Sub(j.startedAt).Seconds(), 0)
	j.startedAt, j.epochAt, j.live, j.paces = time.Time{}, time.Time{}, nil, nil
}

// epochEnded adds an epoch; false for one that is known already.
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
	// The epoch's own mean covers the heartbeats since the one before.
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

// sinceLastEpoch stands in for the duration that a job does not tell; 0 where it cannot be known.
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

// stepped adds a heartbeat; false where it says nothing.
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
	j.pace(b)
	return true
}

// stepOfJob is the time between two steps of the whole job, where each process tells its own: asynchronous workers do not step together.
func (j *job) stepOfJob(seconds float64, workers int) float64 {
	if j.history.Kind == train.SpeedServersAsync && j.spec.Launch == train.LaunchPerDevice {
		return seconds / float64(max(workers, 1))
	}
	return seconds
}

// remember keeps the peak of the device memory with the batch that was submitted.
func (j *job) remember(peak unit.Bytes) {
	switch {
	case peak <= 0 || j.batch > 0:
	case len(j.history.Memory) == 0:
		j.history.Memory = []curve.MemoryPoint{{LocalBatch: j.spec.BatchSize, Bytes: float64(peak)}}
	default:
		j.history.Memory[0].Bytes = math.Max(j.history.Memory[0].Bytes, float64(peak))
	}
}

// model is what the history teaches now.
func (j *job) model() train.Model {
	h := j.history
	h.Steps = folded(slices.Concat(h.Steps, j.live))
	h.Memory = slices.Concat(h.Memory, j.peaks)
	m := curve.Refit(h.With(j.lent))
	m.Stragglers = j.stragglers
	return m
}

// estimate is the run time as it looks at the end of the last epoch. False before one has ended, or where nothing is known of the speed.
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

// changeWorthTelling is the relative change of the total below which nobody is told.
const changeWorthTelling = 0.05

// news says whether an estimate tells something that the last one did not.
func (j *job) news(r event.Reestimated) bool {
	if j.told == nil || j.told.PriorityPenalty != r.PriorityPenalty {
		return true
	}
	return math.Abs(r.TotalSeconds-j.told.TotalSeconds) > changeWorthTelling*j.told.TotalSeconds
}

// thin bounds the epochs that are kept: the old ones, which a curve needs least, lose every second one.
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

// folded is one sample for each configuration.
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
