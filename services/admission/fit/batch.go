package fit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// batch checks the sizes of passes and optimizer steps against each other.
func (c *checker) batch() {
	s := c.spec
	if s.BatchSize >= 1 && s.TrainingSetSize >= 1 && s.TrainingSetSize < s.BatchSize {
		c.refuse("BatchTooLarge", "batch_size", "an epoch needs at least one full batch",
			"want at most training_set_size %d, found %d", s.TrainingSetSize, s.BatchSize)
	}
	c.between("global_batch_size", int64(s.GlobalBatchSize), 0, MaxSamples, "the number of samples per optimizer step")
	if s.GlobalBatchSize > 0 {
		c.stepFits("global_batch_size", s.GlobalBatchSize)
	}
	given := ""
	switch {
	case s.AdaptiveBatch != nil:
		given = "adaptive_batch"
		c.adaptiveBatch(*s.AdaptiveBatch)
	case s.GlobalBatchSize > 0:
		given = "global_batch_size"
	default:
		c.sharedOut("max_devices", s.WithDefaults().WithGlobalBatch())
		return
	}
	if s.BatchPerDevice {
		c.refuse("Contradiction", "batch_per_device", "leave one of them out",
			"it keeps batch_size on every device, but %s is given", given)
	}
	if s.Strategy == train.StrategyParameterServer {
		c.refuse("NotSupported", given, "leave it out, or use strategy all_reduce",
			"workers of parameter servers take batch_size samples each")
	}
	c.sharedOut(given, s.WithDefaults().WithGlobalBatch())
}

// sharedOut refuses a step with fewer samples than devices.
func (c *checker) sharedOut(field string, s train.Spec) {
	if s.KeepsBatch() && s.BatchSize > 0 && s.LargestStep() < s.MaxDevices {
		c.refuse("BatchTooSmall", field, "allow fewer devices, give a larger global_batch_size, or set batch_per_device",
			"a step of %d samples cannot be shared out to %d devices", s.LargestStep(), s.MaxDevices)
	}
}

// stepFits refuses a step that is larger than an epoch.
func (c *checker) stepFits(field string, samples int) {
	if most := c.spec.TrainingSetSize; most >= 1 && samples > most {
		c.refuse("BatchTooLarge", field, "an epoch needs at least one full step", "want at most training_set_size %d, found %d", most, samples)
	}
}

// adaptiveBatch checks the bounds within which the planner chooses the batch.
func (c *checker) adaptiveBatch(a train.AdaptiveBatchSpec) {
	base := c.spec.WithDefaults().WithGlobalBatch().GlobalBatchSize
	c.between("adaptive_batch.max", int64(a.Max), int64(max(base, 1)), MaxSamples,
		"the largest number of samples per optimizer step; the smallest is global_batch_size, or batch_size times min_devices")
	c.stepFits("adaptive_batch.max", a.Max)
	c.between("adaptive_batch.max_per_device", int64(a.MaxPerDevice), 0, MaxSamples, "the largest number of samples per device and pass")
	if a.MaxPerDevice > 0 && a.MaxPerDevice < c.spec.BatchSize {
		c.refuse("Contradiction", "adaptive_batch.max_per_device", "leave it out, or lower batch_size",
			"want at least batch_size %d, found %d", c.spec.BatchSize, a.MaxPerDevice)
	}
	most := c.spec.WithDefaults().WithGlobalBatch().MaxLocalBatch()
	c.between("adaptive_batch.min_per_device", int64(a.MinPerDevice), 0, int64(max(most, 1)),
		"the least number of samples per device and pass; the largest is max_per_device, or batch_size")
	for _, model := range slices.Sorted(maps.Keys(a.MaxPerDeviceOn)) {
		c.between(fmt.Sprintf("adaptive_batch.max_per_device_on[%q]", model), int64(a.MaxPerDeviceOn[model]), int64(max(a.MinPerDevice, 1)), MaxSamples,
			"the largest number of samples per device and pass on this model of device; the smallest is min_per_device")
	}
	c.oneOf("adaptive_batch.learning_rate", string(a.LearningRate), string(train.RateAdaScale), string(train.RateSqrt),
		string(train.RateLinear), string(train.RateNone))
	if c.spec.LogFormat != "" {
		c.refuse("NotSupported", "adaptive_batch", "leave it out, or let the code call the job API",
			"a program whose output is read cannot be asked to change its batch")
	}
	if e := c.spec.Energy; e != nil && len(e.BatchSizes) > 0 {
		c.refuse("Contradiction", "adaptive_batch", "leave one of them out", "energy.batch_sizes also chooses the batch")
	}
}
