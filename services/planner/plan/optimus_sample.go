package plan

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// explore puts jobs of which too few configurations have run on the one that teaches most, for an epoch, as long as its devices are free and nobody waits
// (Optimus samples a job before it allocates, section 3.2).
func (b *board) explore() {
	if slices.ContainsFunc(b.jobs, func(c *candidate) bool { return !c.got.held() }) {
		return
	}
	for _, c := range b.jobs {
		if !c.rescalable || !c.unchanged() {
			continue
		}
		bounds := curve.SampleBounds{MinWorkers: c.min, MaxWorkers: min(c.max, c.got.size+b.nodes[c.got.node].free())}
		// Jobs with parameter servers are not of this board.
		if next, ok := b.nextSample(c, train.SpeedAllReduce, c.config(c.got.size), bounds); ok {
			b.give(c, c.got.node, next.Workers)
			c.sampled = true
		}
	}
}

// nextSample is the configuration to learn about next; false where enough is known, nothing that could be completed by samples, or nothing is cheap enough.
func (b *board) nextSample(c *candidate, kind train.SpeedKind, here train.Config, bounds curve.SampleBounds) (train.Config, bool) {
	if c.predicted.source != fromModel || !c.Model.Speed.Known() {
		return train.Config{}, false
	}
	bounds.Affordable = func(next train.Config) bool {
		next.LocalBatch = here.LocalBatch
		return (next.Workers != here.Workers || next.Servers != here.Servers) && b.affordable(c, here, next)
	}
	return curve.NextSample(kind, c.Model.Speed.Measured, bounds)
}

// affordable says whether an epoch on another configuration, with the restarts there and back, costs no more than this sample's part of what may be spent
// on learning: the hysteresis, a share of the job's remaining time, over all samples.
func (b *board) affordable(c *candidate, from, to train.Config) bool {
	here, known := c.Model.EpochSecondsOn(from, c.Spec.StepsIn)
	there, _ := c.Model.EpochSecondsOn(to, c.Spec.StepsIn)
	left, _ := c.Model.RemainingSeconds(from, float64(c.EpochsDone), c.Spec.StopRule(), c.Spec.StepsIn)
	price := 2*b.tuning.RestartSeconds + math.Max(there-here, 0)
	return known && price <= b.tuning.Hysteresis*left.Expected/float64(curve.EnoughSamples(c.Spec.SpeedKind()))
}
