package train

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AdaptiveBatchSpec bounds the batches that the planner may choose for a job.
type AdaptiveBatchSpec struct {
	// Max is the largest number of samples of one optimizer step.
	Max int `json:"max"`
	// MaxPerDevice is the largest number of samples per device and pass (default: batch_size).
	MaxPerDevice int `json:"max_per_device,omitempty"`
	// MinPerDevice is the least number of samples per device and pass for which a device is worth having (default: 1).
	MinPerDevice int `json:"min_per_device,omitempty"`
	// MaxPerDeviceOn overrides MaxPerDevice on models of device, by name: more fits into larger memory.
	MaxPerDeviceOn map[string]int `json:"max_per_device_on,omitempty"`
	// LearningRate is the rule by which the learning rate follows the batch: adascale (default), sqrt, linear or none.
	LearningRate LearningRateRule `json:"learning_rate,omitempty"`
}

// LearningRateRule says by which factor the learning rate grows with the batch.
type LearningRateRule string

// The rules. Ratio is the batch over GlobalBatchSize.
const (
	RateAdaScale LearningRateRule = "adascale" // the gain of a step, from the gradient noise (Johnson et al. 2020)
	RateSqrt     LearningRateRule = "sqrt"     // the square root of the ratio
	RateLinear   LearningRateRule = "linear"   // the ratio
	RateNone     LearningRateRule = "none"     // the code sets the rate itself, or it stays
)

// Batch is how a gang forms its optimizer steps. The zero value leaves the batch as submitted.
type Batch struct {
	// Samples is the number of samples of one optimizer step, if it is not the product of the other two and the devices:
	// then some passes have fewer samples than LocalBatch.
	Samples int `json:"global_batch,omitempty"`
	// LocalBatch is the number of samples per device and pass.
	LocalBatch int `json:"local_batch,omitempty"`
	// Accumulation is the number of passes before the pass that ends with the exchange of gradients.
	Accumulation int `json:"accumulation,omitempty"`
}

// Global returns the number of samples of one optimizer step on a number of devices.
func (b Batch) Global(devices int) int {
	if b.Samples > 0 {
		return b.Samples
	}
	return devices * b.LocalBatch * b.Passes()
}

// BatchChoice says why a batch was chosen: what was predicted when it was decided.
type BatchChoice struct {
	Reason Reason `json:"reason"`
	// Options are the next smaller batch, the chosen one and the next larger one, as far as the job's bounds allow them.
	Options []BatchOption `json:"options,omitempty"`
}

// BatchOption is a batch with what is predicted of it.
type BatchOption struct {
	// Batch is how the gang forms its steps.
	Batch Batch `json:"batch"`
	// GlobalBatch is the number of samples of a step.
	GlobalBatch int     `json:"global_batch"`
	StepSeconds float64 `json:"step_seconds"`
	// Efficiency is the progress per sample, relative to steps of the base batch, and Goodput the progress per second, in
	// steps of the base batch; 0 if the gradient noise is unknown.
	Efficiency float64 `json:"efficiency,omitempty"`
	Goodput    float64 `json:"goodput,omitempty"`
	// Chosen is set for the batch that the job gets.
	Chosen bool `json:"chosen,omitempty"`
}

// KeepsBatch reports whether the optimizer steps of the job are the same on any number of devices.
func (s Spec) KeepsBatch() bool { return s.GlobalBatchSize > 0 }

// BaseBatch returns the global batch at which progress and gradient noise are counted.
func (s Spec) BaseBatch() int { return cmp.Or(s.GlobalBatchSize, s.BatchSize) }

// WithGlobalBatch fixes the global batch of an elastic job whose user did not: it trains on more devices as on the
// fewest. Admission does so; specs admitted earlier keep their batch per device.
func (s Spec) WithGlobalBatch() Spec {
	elastic := s.MaxDevices > s.MinDevices && s.Strategy == StrategyAllReduce
	if s.GlobalBatchSize == 0 && !s.BatchPerDevice && (elastic || s.AdaptiveBatch != nil) {
		s.GlobalBatchSize = s.BatchSize * max(s.MinDevices, 1)
	}
	if s.AdaptiveBatch != nil {
		a := *s.AdaptiveBatch
		a.MaxPerDevice = cmp.Or(a.MaxPerDevice, s.BatchSize)
		a.LearningRate = cmp.Or(a.LearningRate, RateAdaScale)
		s.AdaptiveBatch = &a
	}
	return s
}

// WithBatchSize returns the spec with another batch per device, and a global batch that is as much larger.
func (s Spec) WithBatchSize(samples int) Spec {
	s.GlobalBatchSize = up(s.GlobalBatchSize*samples, s.BatchSize)
	s.BatchSize = samples
	return s
}

// WithOwnBatch returns the spec of code that runs with its own batch on each device, whatever it is asked for.
func (s Spec) WithOwnBatch(perDevice int) Spec {
	s.BatchSize = cmp.Or(perDevice, s.BatchSize)
	s.GlobalBatchSize, s.BatchPerDevice, s.AdaptiveBatch = 0, true, nil
	return s
}

// MaxLocalBatch returns the largest number of samples per device and pass.
func (s Spec) MaxLocalBatch() int {
	if s.AdaptiveBatch != nil {
		return cmp.Or(s.AdaptiveBatch.MaxPerDevice, s.BatchSize)
	}
	return s.BatchSize
}

// LargestStep returns the largest number of samples of an optimizer step, 0 if it grows with the devices.
func (s Spec) LargestStep() int {
	if s.AdaptiveBatch != nil {
		return max(s.GlobalBatchSize, s.AdaptiveBatch.Max)
	}
	return s.GlobalBatchSize
}

// Batch returns the submitted batch on a number of devices. A step of adaptive_batch has a sample for each of them.
func (s Spec) Batch(devices int) Batch {
	if !s.KeepsBatch() {
		return Batch{LocalBatch: s.BatchSize}
	}
	samples := max(s.GlobalBatchSize, min(devices, s.LargestStep()))
	share := up(samples, devices)
	passes := up(share, s.MaxLocalBatch())
	return Batch{Samples: samples, LocalBatch: up(share, passes), Accumulation: passes - 1}
}

// BatchIn returns the batch of the job under an allocation: the planner chooses it for jobs that let it.
func (s Spec) BatchIn(a Allocation) Batch {
	switch {
	case !s.KeepsBatch():
		return Batch{}
	case s.AdaptiveBatch != nil && a.Batch.LocalBatch > 0:
		return a.Batch
	}
	return s.Batch(len(AllDevices(a.Places())))
}

// Passes returns the number of passes of each device in one optimizer step.
func (b Batch) Passes() int { return b.Accumulation + 1 }

// On returns the configuration of the job with the submitted batch.
func (s Spec) On(workers, nodes int) Config {
	return Config{Workers: workers, Nodes: nodes, LocalBatch: s.Batch(workers).LocalBatch}
}

// StepsPerEpoch returns the number of optimizer steps of one epoch on a number of devices, rounded down as the upstream
// library does it, and at least 1. If only the steps of the training are declared, its epochs share them.
func (s Spec) StepsPerEpoch(devices int) int {
	devices = max(devices, 1)
	if s.TrainingSetSize == 0 && s.MaxSteps > 0 {
		return up(s.MaxSteps, s.MaxEpochs)
	}
	return max(s.TrainingSetSize/max(s.Batch(devices).Global(devices), 1), 1)
}

// StepsIn returns the number of steps of an epoch in the unit of the job's speed model: synchronous workers make one
// step together, accumulated passes count as steps, and so does each step of an asynchronous worker. It is 0 if the
// size of an epoch is not declared.
func (s Spec) StepsIn(cfg Config) float64 {
	if s.TrainingSetSize == 0 && s.MaxSteps == 0 {
		return 0
	}
	if s.SpeedKind() == SpeedServersAsync {
		return float64(s.StepsPerEpoch(1))
	}
	return float64(s.StepsPerEpoch(cfg.Workers) * s.Batch(cfg.Workers).Passes())
}

// up divides and rounds up.
func up(n, by int) int { return (n + max(by, 1) - 1) / max(by, 1) }

// Tuning is the desired micro-batches of the jobs that share a device. It is desired state, not a command: a late or
// repeated delivery has the same effect.
type Tuning struct {
	Node   NodeID   `json:"node"`
	Device DeviceID `json:"device"`
	// Generation changes whenever a micro-batch changes. Reports of step times carry the generation they were measured
	// under.
	Generation uint64 `json:"generation"`
	// Since is the time when the generation began.
	Since   time.Time  `json:"since"`
	Tenants []TunedJob `json:"tenants"`
	// Tried is the number of combinations measured.
	Tried int `json:"tried"`
	// Settled is the reason why nothing more is tried; empty during the tuning.
	Settled Reason `json:"settled,omitzero"`
}

// TunedJob is one of the jobs on a device.
type TunedJob struct {
	Job     JobID `json:"job"`
	Attempt int   `json:"attempt"`
	// MicroBatch is the number of samples of a pass; 0 for a job that cannot change it.
	MicroBatch int `json:"micro_batch,omitempty"`
	// Accumulation is the number of passes that make an optimizer step. The last one may be smaller.
	Accumulation int `json:"accumulation,omitempty"`
	// Enlarged reports that the optimizer step is larger than the submitted one.
	Enlarged bool `json:"enlarged,omitempty"`
}

// TuningKey returns the key of the tuning of a device.
func TuningKey(node NodeID, device DeviceID) string {
	return string(node) + "." + strings.ReplaceAll(string(device), ":", ".")
}

// Of finds a job on the device.
func (t Tuning) Of(job JobID, attempt int) (TunedJob, bool) {
	i := slices.IndexFunc(t.Tenants, func(one TunedJob) bool { return one.Job == job && one.Attempt == attempt })
	if i < 0 {
		return TunedJob{}, false
	}
	return t.Tenants[i], true
}

// String is the micro-batch as a person reads it: 16 x 4 are four passes of 16 samples.
func (t TunedJob) String() string {
	if t.MicroBatch == 0 {
		return ""
	}
	return fmt.Sprintf("%dx%d", t.MicroBatch, t.Accumulation)
}
