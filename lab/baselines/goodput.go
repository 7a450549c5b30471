package baselines

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// batchSamples is how many batch sizes are tried between the smallest and the largest, in geometric steps (Pollux,
// OSDI'21).
const batchSamples = 50

// splitBatch spreads a global batch over a number of devices: the fewest passes that fit, and at least two on one
// device for more than the base batch, since the gradient noise cannot be measured from one pass alone.
func splitBatch(batch, devices int, l state.Limits) train.Batch {
	return splitSamples(float64(batch), devices, l)
}

func splitSamples(batch float64, devices int, l state.Limits) train.Batch {
	const slack = 1e-8
	local := batch / float64(devices)
	more := math.Max(math.Ceil(local/float64(l.MaxLocal)-slack)-1, 0)
	if devices == 1 && batch > float64(l.BaseBatch)+slack {
		more = math.Max(more, 1)
	}
	return train.Batch{LocalBatch: int(math.Ceil(local/(more+1) - slack)), Accumulation: int(more)}
}

// goodputOf is the progress per second, in steps at the base batch: the gain of a step over its time.
func goodputOf(m train.AllReduce, noise train.Efficiency, nodes, devices int, b train.Batch) float64 {
	cfg := train.Config{Workers: devices, Nodes: nodes, LocalBatch: b.LocalBatch}
	seconds := m.StepSeconds(cfg) + float64(b.Accumulation)*m.ComputeSeconds(cfg)
	if seconds <= 0 {
		return 0
	}
	return noise.Gain(b.Global(devices)) / seconds
}

// bestBatch is the batch with the most goodput on a number of devices, and that goodput; zero if no batch fits.
func bestBatch(m train.AllReduce, noise train.Efficiency, l state.Limits, nodes, devices int) (float64, train.Batch) {
	low, high := float64(max(l.BaseBatch, l.MinLocal*devices)), float64(l.MaxBatch)
	if low > high {
		return 0, splitBatch(l.MaxBatch, devices, l)
	}
	best, chosen := math.Inf(-1), train.Batch{}
	last := train.Batch{LocalBatch: -1}
	ratio := math.Pow(high/low, 1.0/(batchSamples-1))
	for i, batch := 0, low; i < batchSamples; i, batch = i+1, batch*ratio {
		b := splitSamples(math.Min(batch, high), devices, l)
		if b == last {
			continue
		}
		last = b
		if g := goodputOf(m, noise, nodes, devices, b); g > best {
			best, chosen = g, b
		}
	}
	return best, chosen
}
