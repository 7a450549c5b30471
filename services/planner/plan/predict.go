package plan

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// predicted are remaining times by number of devices, computed when first asked for.
type predicted struct {
	// source says what they rest on.
	source source
	// guess is the remaining time on min devices where there is no model.
	guess   float64
	seconds []float64 // by devices-min; NaN: not yet computed
}

// source tells where a prediction comes from.
type source int

const (
	fromNothing source = iota
	fromUser
	fromModel
)

// predict finds out what is known of each job.
func (b *board) predict() {
	var known []float64
	widest := b.widest()
	for _, c := range slices.Concat(b.jobs, b.riders) {
		p := &c.predicted
		p.seconds = slices.Repeat([]float64{math.NaN()}, 1+max(min(c.max, widest)-c.min, 0))
		if m := c.Model; m != nil && c.Spec.MaxEpochs > 0 && (m.Speed.Known() || m.EpochSeconds > 0) {
			p.source = fromModel
			known = append(known, c.remaining(c.min)/c.ahead())
			continue
		}
		if declared := c.Spec.EstimatedHours * 3600; declared > 0 {
			// What has run is taken off, but a job that outruns its estimate is not taken to be done.
			p.source, p.guess = fromUser, math.Max(declared-c.RunSeconds, declared/10)
			known = append(known, declared)
		}
	}
	b.typicalSeconds = b.tuning.UnknownSeconds
	if len(known) > 0 {
		slices.Sort(known)
		b.typicalSeconds = known[len(known)/2]
	}
	for _, c := range b.jobs {
		if c.predicted.source == fromNothing {
			c.predicted.guess = b.typicalSeconds * c.ahead()
		}
	}
}

// ahead is the part of the training that has not been done; a job that is at its end is taken to be nearly there.
func (c *candidate) ahead() float64 {
	if c.Spec.MaxEpochs <= 0 {
		return 1
	}
	const least = 0.01
	return math.Max(1-float64(c.EpochsDone)/float64(c.Spec.MaxEpochs), least)
}

// widest is the size of the largest node, or where gangs may span nodes, of the largest number of devices of one model.
func (b *board) widest() int {
	most, byModel := 0, map[string]int{}
	for i := range b.nodes {
		n := &b.nodes[i]
		size := len(n.devices)
		if b.spans {
			size += byModel[n.model]
			byModel[n.model] = size
		}
		most = max(most, size)
	}
	return most
}

// config is the configuration of a job on so many devices of one node; the batch per device stays as it is.
func (c *candidate) config(devices int) train.Config { return c.configOn(devices, 1) }

func (c *candidate) configOn(devices, nodes int) train.Config {
	return train.Config{Workers: devices, Nodes: nodes, LocalBatch: c.Spec.BatchSize}
}

// remaining is the predicted time to the job's end, in seconds, if it ran on so many devices from now on.
func (c *candidate) remaining(devices int) float64 {
	i := devices - c.min
	if i < 0 || i >= len(c.predicted.seconds) {
		return c.computeOn(c.config(devices))
	}
	if math.IsNaN(c.predicted.seconds[i]) {
		c.predicted.seconds[i] = c.computeOn(c.config(devices))
	}
	return c.predicted.seconds[i]
}

func (c *candidate) computeOn(on train.Config) float64 {
	steps := c.Spec.StepsIn
	if c.predicted.source == fromModel && c.Model != nil {
		left, _ := c.Model.RemainingSeconds(on, float64(c.EpochsDone), c.Spec.StopRule(), steps)
		return bounded(left.Expected)
	}
	// The prior only says how the step grows with the devices; the time itself is guessed.
	shape := curve.PriorAllReduce(max(c.Spec.BatchSize, 1))
	epoch := func(cfg train.Config) float64 {
		cfg.LocalBatch = max(cfg.LocalBatch, 1)
		return shape.StepSeconds(cfg) * steps(cfg)
	}
	return bounded(c.predicted.guess * epoch(on) / epoch(c.config(c.min)))
}

// bounded keeps what no model should say out of the arithmetic and the plan: of one infinite number no plan could be published, for nobody.
func bounded(seconds float64) float64 {
	const longest = 1e10 // three centuries
	if math.IsNaN(seconds) {
		return longest
	}
	return math.Min(math.Max(seconds, 0), longest)
}

// changeable is the share of a job's remaining time that a restart could still shorten: it leaves at the end of the epoch that it is in.
func (c *candidate) changeable() float64 {
	if c.Spec.MaxEpochs <= 0 {
		return 1
	}
	left := float64(c.Spec.MaxEpochs - c.EpochsDone)
	if left <= 1 {
		return 0
	}
	return (left - 1) / left
}

// saves is what a restart on another number of devices would save, in seconds.
func (c *candidate) saves(from, to int) float64 {
	return c.changeable() * (c.remaining(from) - c.remaining(to))
}

// restartSeconds is the price of a restart of a job.
func (b *board) restartSeconds(c *candidate) float64 {
	if c.RestartSeconds > 0 {
		return c.RestartSeconds
	}
	return b.tuning.RestartSeconds
}
