package policy

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// noiseTable is the gradient noise scale of the jobs of a signature, by part of the training and global batch: the
// scale grows during a training, and a training with larger batches often has a larger one.
type noiseTable [][]scaleAt

// scaleAt is a noise scale, in samples, and the global batch with which it was measured.
type scaleAt struct {
	Batch int     `json:"batch"`
	Scale float64 `json:"scale"`
}

const (
	// noiseParts is into how many parts a training is divided.
	noiseParts = 48
	// mostScales bounds the batches of a part, likeBatch is the ratio up to which two of them count as one.
	mostScales = 6
	likeBatch  = 1.5
)

// partOf is the part of its training that a job is in.
func partOf(g *cluster.Gang) int {
	return min(int(g.Done()*noiseParts/math.Max(g.Spec.Epochs(), 1)), noiseParts-1)
}

// learn takes in what a gang has measured last.
func (t *noiseTable) learn(g *cluster.Gang) {
	at, known := measuredScale(g)
	if !known {
		return
	}
	if len(*t) != noiseParts {
		*t = make(noiseTable, noiseParts)
	}
	k := partOf(g)
	(*t)[k] = withScale((*t)[k], at)
}

// measuredScale is the noise scale of a gang as last measured.
func measuredScale(g *cluster.Gang) (scaleAt, bool) {
	n := g.Noise()
	if n == nil {
		return scaleAt{}, false
	}
	scale, known := n.Scale()
	return scaleAt{Batch: max(n.Batch, 1), Scale: scale}, known
}

// withScale puts a measurement in the place of one with about the same batch. The batches stay in ascending order.
func withScale(points []scaleAt, at scaleAt) []scaleAt {
	points = slices.DeleteFunc(slices.Clone(points), func(p scaleAt) bool {
		ratio := float64(p.Batch) / float64(at.Batch)
		return math.Max(ratio, 1/ratio) < likeBatch
	})
	if len(points) == mostScales {
		return points
	}
	i, _ := slices.BinarySearchFunc(points, at.Batch, func(p scaleAt, batch int) int { return p.Batch - batch })
	return slices.Insert(points, i, at)
}

// near returns what was measured in a part, or in the nearest one with a measurement: fast trainings leap over parts.
func (t noiseTable) near(part int) []scaleAt {
	for far := range len(t) {
		for _, k := range [2]int{part - far, part + far} {
			if k >= 0 && k < len(t) && len(t[k]) > 0 {
				return t[k]
			}
		}
	}
	return nil
}

// mended drops what is no table: it comes from outside.
func (t noiseTable) mended() noiseTable {
	if len(t) != noiseParts {
		return nil
	}
	for k, points := range t {
		sound := slices.IsSortedFunc(points, func(x, y scaleAt) int { return x.Batch - y.Batch }) && len(points) <= mostScales
		for _, p := range points {
			sound = sound && p.Batch > 0 && p.Scale >= 0 && p.Scale <= train.MaxNoiseScale
		}
		if !sound {
			t[k] = nil
		}
	}
	return t
}

// noiseCurve predicts the noise scale at a global batch: between those of the two nearest measured batches, times a
// factor.
type noiseCurve struct {
	points []scaleAt
	factor float64
}

// at returns the noise scale for a global batch.
func (n noiseCurve) at(batch float64) float64 {
	i := slices.IndexFunc(n.points, func(p scaleAt) bool { return float64(p.Batch) >= batch })
	switch {
	case i < 0:
		return n.factor * n.points[len(n.points)-1].Scale
	case i == 0:
		return n.factor * n.points[0].Scale
	}
	low, high := n.points[i-1], n.points[i]
	w := math.Log(batch/float64(low.Batch)) / math.Log(float64(high.Batch)/float64(low.Batch))
	return n.factor * (low.Scale + w*(high.Scale-low.Scale))
}

// gain is the progress of a step with a global batch, in steps at the base batch (train.Efficiency.Gain).
func (n noiseCurve) gain(base, batch float64) float64 {
	scale := n.at(batch)
	return (scale/base + 1) / (scale/batch + 1)
}

// known reports whether anything was measured.
func (n noiseCurve) known() bool { return len(n.points) > 0 }

// noiseOf returns the gradient noise of a job as last measured, at other batches as much more or less as others of its
// signature had at this point; or as they had it, if the job has measured nothing.
func (c *speedCurve) noiseOf(g *cluster.Gang) noiseCurve {
	n := noiseCurve{points: c.noise.near(partOf(g)), factor: 1}
	own, measured := measuredScale(g)
	if !measured {
		return n
	}
	if n.known() {
		if there := n.at(float64(own.Batch)); there > 0 && own.Scale > 0 {
			n.factor = own.Scale / there
			return n
		}
	}
	return noiseCurve{points: []scaleAt{own}, factor: 1}
}
