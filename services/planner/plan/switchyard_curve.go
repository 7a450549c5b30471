package plan

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// speedCurve is the speed of the jobs of one signature on one pool.
type speedCurve struct {
	limits    Limits
	fit       train.AllReduce
	unknown   bool
	samples   []Seen
	residuals []float64
	passes    []float64
	noise     []train.Efficiency
	rows      map[[2]int][]pace
	ahead     map[[2]int][]float64
}

// pace is a batch and the time of a step with it.
type pace struct {
	batch   train.Batch
	global  float64
	seconds float64
}

// row are the paces on so many devices of so many nodes.
func (c *speedCurve) row(devices, nodes int) []pace {
	key := [2]int{devices, nodes}
	if r, ok := c.rows[key]; ok {
		return r
	}
	var r []pace
	l := c.limits
	low, high := float64(max(l.BaseBatch, l.MinLocal*devices)), float64(l.MaxBatch)
	if low > high {
		c.rows[key] = nil
		return nil
	}
	steps := max(2, int(math.Ceil(math.Log2(high/low)*4))+1)
	ratio := math.Pow(high/low, 1/float64(steps-1))
	last := train.Batch{}
	for i, m := 0, low; i < steps; i, m = i+1, m*ratio {
		b := splitSamples(math.Min(m, high), devices, l)
		b.LocalBatch = min(b.LocalBatch, l.MaxBatch/(devices*(b.Accumulation+1)))
		if b == last || b.LocalBatch < 1 {
			continue
		}
		last = b
		r = append(r, pace{b, float64(b.Global(devices)), c.seconds(devices, nodes, b)})
	}
	c.rows[key] = r
	return r
}

// seconds is the time of a step: the fit, corrected by how far it was off at the configurations like it.
func (c *speedCurve) seconds(devices, nodes int, b train.Batch) float64 {
	cfg := train.Config{Workers: devices, Nodes: nodes, LocalBatch: b.LocalBatch}
	step, pass := c.fit.StepSeconds(cfg), c.fit.ComputeSeconds(cfg)
	var off, offPass, weight float64
	for i, s := range c.samples {
		x := math.Log(float64(s.Workers) / float64(devices))
		y := math.Log(float64(s.LocalBatch) / float64(b.LocalBatch))
		d := 6*x*x + 2*y*y
		if s.Nodes != nodes {
			d += 1
			if s.Nodes == 1 || nodes == 1 {
				d += 10
			}
		}
		w := 1 / (0.03 + d)
		w *= w
		off += w * c.residuals[i]
		offPass += w * c.passes[i]
		weight += w
	}
	weight += 1
	step *= math.Exp(off / weight)
	if b.Accumulation > 0 {
		step += float64(b.Accumulation) * math.Min(pass*math.Exp(offPass/weight), step)
	}
	return step
}

// best is the batch with the most goodput, and that goodput.
func (c *speedCurve) best(g *gang, devices, nodes int) (float64, train.Batch) {
	noise, known := c.noiseOf(g)
	rows := c.row(devices, nodes)
	if len(rows) == 0 {
		return 0, train.Batch{}
	}
	if !known {
		// Nothing is known of larger batches.
		return 1 / rows[0].seconds * math.Max(1, rows[0].global/float64(max(c.limits.BaseBatch, 1))*0.5), rows[0].batch
	}
	best, at := bestOf(rows, noise, float64(c.limits.BaseBatch))
	return best, rows[at].batch
}

// noiseOf is the gradient noise of a job as it was last measured, or as other jobs of its signature had it.
func (c *speedCurve) noiseOf(g *gang) (train.Efficiency, bool) {
	if g.Noise != nil && g.Noise.Variance+g.Noise.Square > 0 {
		return *g.Noise, true
	}
	if len(c.noise) > 0 {
		if n := c.noise[g.part()]; n.Variance+n.Square > 0 {
			return n, true
		}
	}
	return train.Efficiency{}, false
}

// rest is how long the parts of a training after the k-th take together, in units of one part's work in steps at the base batch.
func (c *speedCurve) rest(devices, nodes int) []float64 {
	key := [2]int{devices, nodes}
	if r, ok := c.ahead[key]; ok {
		return r
	}
	var r []float64
	rows := c.row(devices, nodes)
	if len(c.noise) > 0 && len(rows) > 0 {
		r = make([]float64, noiseParts+1)
		noise := train.Efficiency{}
		each := make([]float64, noiseParts)
		for k := range noiseParts {
			if n := c.noise[k]; n.Variance+n.Square > 0 {
				noise = n
			}
			if noise.Variance+noise.Square > 0 {
				g, _ := bestOf(rows, noise, float64(c.limits.BaseBatch))
				each[k] = 1 / g
			}
		}
		for k := noiseParts - 1; k >= 0; k-- {
			r[k] = r[k+1] + each[k]
		}
	}
	c.ahead[key] = r
	return r
}

// bestOf is the best of a row.
func bestOf(rows []pace, noise train.Efficiency, base float64) (float64, int) {
	top := noise.Variance + noise.Square
	best, at := 0.0, 0
	for i := range rows {
		gain := top / (noise.Variance*base/rows[i].global + noise.Square)
		if v := gain / rows[i].seconds; v > best {
			best, at = v, i
		}
	}
	return best, at
}

// timeLeft is the time to the end of a job if it kept these devices, with a goodput now.
func (c *speedCurve) timeLeft(g *gang, devices, nodes int, goodput float64) float64 {
	left := g.workLeft()
	r := c.rest(devices, nodes)
	k := g.part()
	total := left / math.Max(1-g.done(), 1e-9)
	if r == nil || r[k] <= 0 {
		return left / goodput
	}
	part := total / noiseParts
	inside := math.Max(float64(k+1)/noiseParts-g.done(), 0) * total
	ahead := math.Max(left-inside, 0) / math.Max(part*float64(noiseParts-1-k), 1e-9)
	if k == noiseParts-1 {
		return left / goodput
	}
	return (left-math.Max(left-inside, 0))/goodput + ahead*part*r[k+1]
}

// done is the share of the training that is done.
func (g *gang) done() float64 {
	total := float64(g.Spec.TrainingSetSize) * float64(g.Spec.MaxEpochs) / float64(max(g.base(), 1))
	return math.Min(g.Progress/math.Max(total, 1), 0.999)
}
