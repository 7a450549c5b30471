package recur

import (
	"math"
	"slices"
)

// Prior is the belief about trainings in general: standard deviations of the logarithm of the cost as a function of
// x, the binary logarithm of the batch size over the default.
type Prior struct {
	// Slope is the deviation of the cost's slope over x at the default.
	Slope float64
	// Bend is the deviation of the change of the slope from one x to the next.
	Bend float64
	// Rough is the deviation of the part of the cost that each batch size has for itself.
	Rough float64
	// Noise is the deviation of one run. It counts like NoiseRuns runs beside the observed runs of the same batch size.
	Noise, NoiseRuns float64
	// Trend times the natural logarithm of the default's epochs over UsualEpochs is the expected slope. Many epochs are a
	// sign of a batch beyond the critical size, and a smaller batch then needs fewer epochs (McCandlish et al., 2018). The
	// slope decides in which direction the first step goes.
	Trend, UsualEpochs float64
	// MinHorizon is the least number of recurrences still expected.
	MinHorizon float64
	// StopRatio is the multiple of the cheapest recurrence's cost at which an attempt is stopped.
	StopRatio float64
}

// StandardPrior assumes that twice the batch may cost a third less or half as much again, and that runs of the same
// batch size differ by a tenth.
func StandardPrior() Prior {
	return Prior{Slope: 0.5, Bend: 0.2, Rough: 0.1, Noise: 0.1, NoiseRuns: 4, Trend: 0.1, UsualEpochs: 12, MinHorizon: 30, StopRatio: 2.5}
}

// trend returns the expected slope of a training that takes a number of epochs with its default; 0 stands for unknown.
func (p Prior) trend(epochs float64) float64 {
	if !(epochs > 0) {
		return 0
	}
	return p.Trend * math.Log(epochs/p.UsualEpochs)
}

// belief is a Gaussian belief about the logarithm of the expected cost of every batch size.
type belief struct {
	mean  []float64
	cov   [][]float64
	noise float64   // variance of one run
	stop  float64   // the multiple of the best known cost at which a run is stopped
	known []bool    // has run
	out   []bool    // is not to be tried again
	nodes []float64 // normal deviates, equally probable
}

func newBelief(p Prior, sizes []int, start int, h history) *belief {
	n := len(sizes)
	b := &belief{mean: make([]float64, n), cov: make([][]float64, n), noise: h.noise(p), stop: p.StopRatio, known: make([]bool, n), out: make([]bool, n), nodes: normalNodes()}
	x := make([]float64, n)
	for i, size := range sizes {
		x[i] = math.Log2(float64(size) / float64(start))
		b.known[i] = h.runs[i] > 0
		b.out[i] = h.failed[i] > h.reached[i]
	}
	for i := range n {
		b.mean[i] = h.mean[h.best] + p.trend(h.epochs)*x[i]
		b.cov[i] = make([]float64, n)
		for k := range n {
			b.cov[i][k] = p.covariance(x[i], x[k])
		}
		b.cov[i][i] += p.Rough * p.Rough
	}
	for i := range n {
		if b.known[i] {
			b.observe(i, h.mean[i], b.noise/h.runs[i])
		}
	}
	b.prune()
	return b
}

// covariance is the covariance of the costs at two distances from the default before any run. It adds up the level,
// about which nothing is known, the slope, and the bends, which accumulate away from the default as the integral of
// a Brownian motion. So the cost far beyond the runs is uncertain.
func (p Prior) covariance(x, y float64) float64 {
	const level = 1
	c := level + p.Slope*p.Slope*x*y
	if x*y > 0 {
		near, far := min(math.Abs(x), math.Abs(y)), max(math.Abs(x), math.Abs(y))
		c += p.Bend * p.Bend * near * near * (far/2 - near/6)
	}
	return c
}

// observe conditions the belief on the mean y of runs of batch size i.
func (b *belief) observe(i int, y, variance float64) {
	row := slices.Clone(b.cov[i])
	off, total := y-b.mean[i], row[i]+variance
	for k := range b.mean {
		b.mean[k] += row[k] / total * off
		for l := range b.mean {
			b.cov[k][l] -= row[k] / total * row[l]
		}
	}
}

// prune gives up the batch sizes beyond a failure, as seen from the best: the next failure is likely there.
func (b *belief) prune() {
	best := b.bestKnown()
	for i := best + 1; i < len(b.out); i++ {
		b.out[i] = b.out[i] || i-1 > best && b.out[i-1]
	}
	for i := best - 1; i >= 0; i-- {
		b.out[i] = b.out[i] || i+1 < best && b.out[i+1]
	}
}

// bestKnown returns the batch size of the least mean among those that ran and are not out, or among all that ran if
// all are out.
func (b *belief) bestKnown() int {
	best := -1
	better := func(i int) bool {
		return best < 0 || b.out[best] && !b.out[i] || b.out[best] == b.out[i] && b.mean[i] < b.mean[best]
	}
	for i, known := range b.known {
		if known && better(i) {
			best = i
		}
	}
	return best
}

// open reports whether batch size i may be tried: it or a neighbour has run.
func (b *belief) open(i int) bool {
	near := b.known[i] || i > 0 && b.known[i-1] || i+1 < len(b.known) && b.known[i+1]
	return near && !b.out[i]
}

// price returns the expected cost of one run, in units of the best known cost: the run is stopped at b.stop, and
// another one follows.
func (b *belief) price(i, best int) float64 {
	deviation, sum := math.Sqrt(b.cov[i][i]+b.noise), 0.0
	for _, z := range b.nodes {
		cost := math.Exp(b.mean[i] - b.mean[best] + deviation*z)
		if cost > b.stop {
			cost = b.stop + 1
		}
		sum += cost
	}
	return sum / float64(len(b.nodes))
}

// gain returns the average share by which the cost falls below that of the best known batch size when batch size i
// runs once more.
func (b *belief) gain(i int) float64 {
	deviation, sum := math.Sqrt(b.cov[i][i]+b.noise), 0.0
	now := b.mean[b.bestKnown()]
	for _, z := range b.nodes {
		sum += 1 - math.Exp(b.least(i, z/deviation)-now)
	}
	return max(sum/float64(len(b.nodes)), 0)
}

// least returns the least mean among the batch sizes that ran and batch size i, after a run of i whose cost is off
// by a number of its standard deviations.
func (b *belief) least(i int, off float64) float64 {
	least := math.Inf(1)
	for k, m := range b.mean {
		if (b.known[k] || k == i) && !b.out[k] {
			least = min(least, m+b.cov[k][i]*off)
		}
	}
	return least
}

// normalNodes returns the middles of equally probable slices of the normal distribution.
func normalNodes() []float64 {
	nodes := make([]float64, 32)
	for i := range nodes {
		nodes[i] = math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(nodes))-1)
	}
	return nodes
}
