package curve

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// MaxSampleRuns bounds the number of configurations a job runs on only to learn its speed (Optimus takes about 8).
const MaxSampleRuns = 8

// enoughAllReduce is the number of sizes that separate the terms of workers on one node: alone, two, and more.
const enoughAllReduce = 4

// EnoughSamples returns the number of configurations after which NextSample asks for no more.
func EnoughSamples(kind train.SpeedKind) int {
	if kind == train.SpeedAllReduce {
		return enoughAllReduce
	}
	return MaxSampleRuns
}

// SampleBounds are the configurations that may be sampled: workers from MinWorkers to MaxWorkers and, for
// parameter-server jobs, servers from 1 to MaxServers.
type SampleBounds struct {
	MinWorkers, MaxWorkers, MaxServers int
	// Affordable excludes configurations that would cost too much; nil excludes none.
	Affordable func(train.Config) bool
}

// NextSample returns the configuration that would teach most, given those that have run; false if enough are known or
// none is left. Among workers and servers in powers of two and the bounds themselves, it takes the one whose terms the
// others determine least: the largest x'(X'X)^-1 x with x the columns of the step-time form (D-optimal design, one
// point at a time). Such points lie off the diagonal by themselves: if servers always equal workers, the terms in w/p
// and in 1, and those in w and in p, cannot be separated. The smallest of several equal ones goes first.
func NextSample(kind train.SpeedKind, seen []train.Measured, bounds SampleBounds) (train.Config, bool) {
	bounds.MinWorkers = max(bounds.MinWorkers, 1)
	servers := []int{0}
	if kind != train.SpeedAllReduce {
		servers = levels(1, max(bounds.MaxServers, 1))
	}
	known := map[train.Config]bool{}
	information := mat.NewSymDense(designColumns, nil)
	scale := designRow(kind, train.Config{Workers: max(bounds.MaxWorkers, 1), Servers: 1})
	scale[designColumns-1] = float64(max(bounds.MaxServers, 1))
	for i := range designColumns {
		// A little prior knowledge of every term keeps the matrix regular.
		information.SetSym(i, i, 1e-3)
	}
	for _, m := range seen {
		c := train.Config{Workers: m.Workers, Servers: m.Servers}
		if kind == train.SpeedAllReduce && m.Nodes > 1 || known[c] {
			continue
		}
		known[c] = true
		x := scaled(designRow(kind, c), scale)
		information.SymRankOne(information, 1, x)
	}
	if len(known) >= EnoughSamples(kind) {
		return train.Config{}, false
	}
	var factors mat.Cholesky
	if !factors.Factorize(information) {
		return train.Config{}, false
	}
	best, most := train.Config{}, 0.0
	for _, w := range levels(bounds.MinWorkers, bounds.MaxWorkers) {
		for _, p := range servers {
			c := train.Config{Workers: w, Servers: p}
			if news := leverage(&factors, scaled(designRow(kind, c), scale)); !known[c] && news > most*(1+1e-9) && bounds.affords(c) {
				best, most = c, news
			}
		}
	}
	best.Nodes = 1
	return best, most > 0
}

func (b SampleBounds) affords(c train.Config) bool {
	c.Nodes = 1
	return b.Affordable == nil || b.Affordable(c)
}

// levels returns low times the powers of two up to high, and high itself.
func levels(low, high int) []int {
	var all []int
	for n := low; n < high; n *= 2 {
		all = append(all, n)
	}
	if high >= low {
		all = append(all, high)
	}
	return slices.Compact(all)
}

// designColumns are the terms: constant, share, workers, servers.
const designColumns = 4

// designRow returns the columns of a configuration in its step-time form; the batch per worker is the same in all.
func designRow(kind train.SpeedKind, c train.Config) []float64 {
	w, p := float64(c.Workers), float64(max(c.Servers, 1))
	if kind == train.SpeedServersSync || kind == train.SpeedServersAsync {
		return []float64{1, w / p, w, p}
	}
	network := 0.0
	if c.Workers > 1 {
		network = 1
	}
	return []float64{1, network, math.Max(w-2, 0), 0}
}

func scaled(row, scale []float64) *mat.VecDense {
	x := mat.NewVecDense(designColumns, nil)
	for i, v := range row {
		x.SetVec(i, v/math.Max(scale[i], 1))
	}
	return x
}

// leverage is x'(X'X)^-1 x.
func leverage(factors *mat.Cholesky, x *mat.VecDense) float64 {
	var y mat.VecDense
	if err := factors.SolveVecTo(&y, x); err != nil {
		return 0
	}
	return mat.Dot(x, &y)
}
