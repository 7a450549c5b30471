package fit

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// energy checks the energy section.
func (c *checker) energy() {
	e := c.spec.Energy
	if e == nil {
		return
	}
	if e.Eta != nil && !(*e.Eta >= 0 && *e.Eta <= 1) {
		c.refuse("OutOfRange", "energy.eta", "", "want 0 (time alone) to 1 (energy alone), found %g", *e.Eta)
	}
	if at := e.StartBy; at != nil && !(at.After(c.who.At) && at.Before(c.who.At.Add(MaxDeadline))) {
		c.refuse("OutOfRange", "energy.start_by", "leave it out if the job may start at once", "want a time after the submission at %s, within %d hours, found %s",
			c.who.At.UTC().Format(time.RFC3339), MaxHours, at.UTC().Format(time.RFC3339))
	}
	c.target(e.Target)
	c.group(e)
}

// target checks the quality the training aims for.
func (c *checker) target(t *train.TargetSpec) {
	if t == nil {
		return
	}
	if n := len(t.Metric); n < 1 || n > maxMetricName {
		c.refuse("InvalidName", "energy.target.metric", "e.g. validation_accuracy, or loss",
			"want the name of a value that the training code reports, 1 to %d bytes, found %d", maxMetricName, n)
	}
	if (t.AtLeast == nil) == (t.AtMost == nil) {
		c.refuse("Contradiction", "energy.target", `e.g. {"metric": "accuracy", "at_least": 0.75}`,
			"want one of at_least and at_most")
	}
}

// maxMetricName is the longest metric name that the job API accepts.
const maxMetricName = 128

// group checks the batch sizes that a group of recurring jobs may try.
func (c *checker) group(e *train.EnergySpec) {
	if e.Group == "" {
		if e.StopEarly {
			c.refuse("Contradiction", "energy.stop_early", "name the group of recurring jobs in energy.group",
				"a job is compared with the cheapest job of its group, but no group is named")
		}
		if len(e.BatchSizes) > 0 {
			c.refuse("Contradiction", "energy.batch_sizes", "name the group of recurring jobs in energy.group",
				"batch sizes are tried over the jobs of a group, but no group is named")
		}
		return
	}
	if _, err := train.ParseJobID(e.Group); err != nil {
		c.refuse("InvalidName", "energy.group", "e.g. nightly-ranking",
			"want 1 to %d letters, digits, '-' or '_', beginning with a letter or digit, found %s", train.MaxIDLength,
			quote(e.Group))
	}
	if n := len(e.BatchSizes); n < 1 || n > MaxBatchSizes {
		c.refuse("OutOfRange", "energy.batch_sizes", "e.g. [32, 64, 128]", "want 1 to %d batch sizes, found %d", MaxBatchSizes, n)
		return
	}
	ordered := slices.Compact(slices.Sorted(slices.Values(e.BatchSizes)))
	if !slices.Equal(ordered, e.BatchSizes) || ordered[0] < 1 || ordered[len(ordered)-1] > c.spec.TrainingSetSize {
		c.refuse("OutOfRange", "energy.batch_sizes", "",
			"want different numbers in ascending order from 1 to training_set_size %d", c.spec.TrainingSetSize)
	}
	if !slices.Contains(e.BatchSizes, c.spec.BatchSize) {
		c.refuse("Contradiction", "energy.batch_sizes", "add it to the list",
			"batch_size %d, with which the group begins, is not in the list", c.spec.BatchSize)
	}
}
