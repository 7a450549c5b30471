package policy

import (
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// speedCurve predicts the goodput of the jobs of one signature on one model of device.
type speedCurve struct {
	limits state.Limits
	model  string
	fit    train.AllReduce
	// tried is the largest batch on a device that has run; slower is the factor by which steps are too short if another
	// model stands in.
	tried  int
	slower float64
	// truth, if there, is asked instead of the fit and the noise.
	truth *Truth
	// samples are where the fit was off, noise is by part of the training.
	samples []residual
	noise   noiseTable
	// rows are the batches to choose from, and rests the times of the parts of a training, by devices and nodes.
	rows  map[spread][]pace
	rests map[spread][]float64
}

type spread struct{ devices, nodes int }

// pace is a batch, the samples of its step and the time of one.
type pace struct {
	batch           train.Batch
	global, seconds float64
	// hoped is the time of a step if more than was tried costs less than the fit says.
	hoped float64
}

// residual is by how much, as a logarithm, a measured step and a measured pass differ from the fit.
type residual struct {
	nodes                  int
	batch                  float64
	logDevices, logBatch   float64
	stepMissed, passMissed float64
}

func newSpeedCurve(g *cluster.Gang, model string) *speedCurve {
	return &speedCurve{limits: state.LimitsOn(model, g.Spec), model: model, slower: 1, rows: map[spread][]pace{}, rests: map[spread][]float64{}}
}

// correct takes in a fit and where it was off.
func (c *speedCurve) correct(l *throughput) {
	const least = 1e-9
	c.fit = l.Fit
	for _, s := range l.Samples {
		step, pass := math.Max(l.Fit.StepSeconds(s.Config), least), math.Max(l.Fit.ComputeSeconds(s.Config), least)
		c.samples = append(c.samples, residual{
			nodes: s.Nodes, batch: float64(s.LocalBatch), logDevices: math.Log(float64(s.Workers)), logBatch: math.Log(float64(s.LocalBatch)),
			stepMissed: math.Log(s.StepSeconds / step), passMissed: math.Log(math.Max(s.StepSeconds-s.SyncSeconds, least) / pass),
		})
	}
}

// resemble takes in what jobs of the family measured, and own measurements as a factor between the two; own may be nil.
func (c *speedCurve) resemble(kin, own *throughput) {
	c.correct(kin)
	c.tried = max(kin.largest(), own.largest())
	if own.count() == 0 {
		return
	}
	sum := 0.0
	for _, s := range own.Samples {
		sum += math.Log(s.StepSeconds / c.seconds(s.Workers, s.Nodes, train.Batch{LocalBatch: s.LocalBatch}))
	}
	c.slower = math.Exp(sum / float64(own.count()))
}

// row are the batches to choose from on the given devices: the smallest that keeps all busy, and from there in four
// steps to each doubling.
func (c *speedCurve) row(devices, nodes int) []pace {
	const perDoubling = 4
	key := spread{devices, nodes}
	if r, known := c.rows[key]; known {
		return r
	}
	var r []pace
	l := c.limits
	if low, high := float64(max(l.BaseBatch, l.MinLocal*devices)), float64(l.MaxBatch); low <= high {
		steps := int(math.Ceil(math.Log2(high/low) * perDoubling))
		ratio := math.Pow(high/low, 1/math.Max(float64(steps), 1))
		last := train.Batch{}
		for i, samples := 0, low; i <= steps; i, samples = i+1, samples*ratio {
			b := splitSamples(math.Min(samples, high), devices, l)
			if b.LocalBatch = min(b.LocalBatch, l.MaxBatch/(devices*(b.Accumulation+1))); b == last || b.LocalBatch < 1 {
				continue
			}
			last = b
			seconds := c.seconds(devices, nodes, b)
			r = append(r, pace{b, float64(b.Global(devices)), seconds, c.hope(devices, nodes, b, seconds)})
		}
	}
	c.rows[key] = r
	return r
}

// seconds is the time of a step: the fit, corrected by the mean of where it was off, the configurations most like this
// one first.
func (c *speedCurve) seconds(devices, nodes int, b train.Batch) float64 {
	const (
		// A sample on other devices, on another number of nodes, or across nodes instead of within one, says less.
		farDevices, farBatch, otherNodes, otherNetwork = 6, 2, 1, 10
		exact                                          = 0.03
	)
	cfg := train.Config{Workers: devices, Nodes: nodes, LocalBatch: b.LocalBatch}
	if c.truth != nil {
		return c.trueSeconds(cfg, b.Accumulation)
	}
	logDevices, logBatch := math.Log(float64(devices)), math.Log(float64(b.LocalBatch))
	step, pass, weight := 0.0, 0.0, 1.0
	for i := range c.samples {
		s := &c.samples[i]
		far := exact + farDevices*square(s.logDevices-logDevices) + farBatch*square(s.logBatch-logBatch)
		if s.nodes != nodes {
			far += otherNodes
			if s.nodes == 1 || nodes == 1 {
				far += otherNetwork
			}
		}
		w := 1 / (far * far)
		step, pass, weight = step+w*s.stepMissed, pass+w*s.passMissed, weight+w
	}
	whole := c.slower * c.fit.StepSeconds(cfg) * math.Exp(step/weight)
	if b.Accumulation == 0 {
		return whole
	}
	return whole + float64(b.Accumulation)*math.Min(c.slower*c.fit.ComputeSeconds(cfg)*math.Exp(pass/weight), whole)
}

// hope is the time of a step, halfway between the fit and no longer than what has run, with batches up to twice as
// large as have run on about the same number of devices. To try one costs nothing but a slower step until the next
// decision.
func (c *speedCurve) hope(devices, nodes int, b train.Batch, seconds float64) float64 {
	const leap = 2
	tried := c.triedOn(devices, nodes)
	if ratio := float64(b.LocalBatch) / float64(max(tried, 1)); tried == 0 || ratio < sameBatch || ratio > leap {
		return seconds
	}
	return math.Sqrt(seconds * c.seconds(devices, nodes, train.Batch{LocalBatch: tried, Accumulation: b.Accumulation}))
}

// triedOn is the largest batch that has run on about the given number of devices, or if none has, on any.
func (c *speedCurve) triedOn(devices, nodes int) int {
	const about = 0.8 // as a logarithm
	most := 0.0
	for i := range c.samples {
		s := &c.samples[i]
		if (s.nodes == 1) == (nodes == 1) && math.Abs(s.logDevices-math.Log(float64(devices))) < about {
			most = math.Max(most, s.batch)
		}
	}
	if most == 0 {
		return c.tried
	}
	return int(most)
}

// best is the most goodput on the given devices, and the batch for it or one that might be better still. Without any
// gradient noise the base batch is the best.
func (c *speedCurve) best(g *cluster.Gang, devices, nodes int) (float64, train.Batch) {
	row := c.row(devices, nodes)
	if len(row) == 0 {
		return 0, train.Batch{}
	}
	if c.truth != nil {
		goodput, at := bestTrue(row, g.EpochsDone, c.truth.Gain)
		return goodput, row[at].batch
	}
	noise := c.noiseOf(g)
	if !noise.known() {
		// Half of what a larger batch could gain at best.
		return math.Max(1, row[0].global/float64(c.limits.BaseBatch)/2) / row[0].seconds, row[0].batch
	}
	base := float64(c.limits.BaseBatch)
	goodput, _ := bestPace(row, noise, base, pace.expected)
	_, at := bestPace(row, noise, base, pace.atBest)
	return goodput, row[at].batch
}

func (p pace) expected() float64 { return p.seconds }
func (p pace) atBest() float64   { return p.hoped }

// bestPace is the pace with the most goodput if steps take so long.
func bestPace(row []pace, noise noiseCurve, base float64, seconds func(pace) float64) (float64, int) {
	best, at := 0.0, 0
	for i := range row {
		if v := noise.gain(base, row[i].global) / seconds(row[i]); v > best {
			best, at = v, i
		}
	}
	return best, at
}

// rest is what the parts of a training after the k-th take together, for a unit of progress each, as far as the noise
// in them is known.
func (c *speedCurve) rest(devices, nodes int) []float64 {
	key := spread{devices, nodes}
	if r, known := c.rests[key]; known {
		return r
	}
	var r []float64
	if row := c.row(devices, nodes); len(c.noise) == noiseParts && len(row) > 0 {
		r = make([]float64, noiseParts+1)
		noise := noiseCurve{factor: 1}
		for k := range noiseParts {
			if len(c.noise[k]) > 0 {
				noise.points = c.noise[k] // a part that no job has reached is assumed to be like the one before
			}
			if noise.known() {
				goodput, _ := bestPace(row, noise, float64(c.limits.BaseBatch), pace.expected)
				r[k] = 1 / goodput
			}
		}
		for k := noiseParts - 1; k >= 0; k-- {
			r[k] += r[k+1]
		}
	}
	c.rests[key] = r
	return r
}

// timeLeft is the time to a job's end if it kept these devices: the part that it is in at the goodput of now, the later
// ones at that of their noise.
func (c *speedCurve) timeLeft(g *cluster.Gang, devices, nodes int, goodput float64) float64 {
	total, left := work(g)
	rest, k := c.rest(devices, nodes), partOf(g)
	later := float64(noiseParts-1-k) / noiseParts * total
	if rest == nil || rest[k+1] <= 0 || left <= 0 {
		return left / goodput
	}
	ahead := math.Min(later, left)
	return (left-ahead)/goodput + ahead/later*total/noiseParts*rest[k+1]
}

// trueSeconds is the time of a step.
func (c *speedCurve) trueSeconds(cfg train.Config, accumulation int) float64 {
	step, sync := c.truth.StepTime(cfg, c.model)
	return step + float64(accumulation)*(step-sync)
}

// bestTrue is the pace with the most goodput if steps have this gain.
func bestTrue(row []pace, epoch int, gain func(globalBatch, epoch int) float64) (float64, int) {
	best, at := 0.0, 0
	for i := range row {
		if v := gain(int(row[i].global), epoch) / row[i].seconds; v > best {
			best, at = v, i
		}
	}
	return best, at
}

// splitSamples spreads a global batch over devices in the fewest passes that fit.
func splitSamples(batch float64, devices int, l state.Limits) train.Batch {
	const slack = 1e-8
	local := batch / float64(devices)
	more := math.Max(math.Ceil(local/float64(l.MaxLocal)-slack)-1, 0)
	return train.Batch{LocalBatch: int(math.Ceil(local/(more+1) - slack)), Accumulation: int(more)}
}

func square(x float64) float64 { return x * x }
