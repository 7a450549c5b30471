package pipeline

import (
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

// Prior is what is believed of system parameters in general: standard deviations of the logarithm of an epoch's cost, where a step is a factor of two.
type Prior struct {
	// Factors are those that more is known of, by name; Other holds for the rest.
	Factors map[string]FactorPrior
	Other   FactorPrior
	// Rough is of what a setting has for itself, Noise of one epoch.
	Rough, Noise float64
	// Common is the share of a shape's variance that all workloads have in common, Alike the share among those of one kind.
	Common, Alike float64
	// Weight is how many surprises this prior's own scale is worth against those that were seen.
	Weight float64
}

// FactorPrior is what is believed of one factor.
type FactorPrior struct {
	// Slope is of the cost per step away from the default, Bend of the slope's change from one step to the next.
	Slope, Bend float64
	// Overhead is by how much a step down is expected to save for each halving of the samples that a worker has in a batch, below NeutralSamples of them:
	// less is then computed between two synchronisations, and more workers wait in each. Doubt is its standard deviation.
	Overhead, Doubt, NeutralSamples float64
}

// StandardPrior says: half the cores may cost a fifth more or less, memory that is enough changes little. Slope and overhead of cores are those of a published
// grid of cores and batch sizes that none of the replayed epochs is part of (docs/tuning.md).
func StandardPrior() Prior {
	return Prior{
		Factors: map[string]FactorPrior{
			Cores:  {Slope: 0.2, Bend: 0.1, Overhead: 0.08, Doubt: 0.08, NeutralSamples: 32},
			Memory: {Slope: 0.03},
		},
		Other: FactorPrior{Slope: 0.2, Bend: 0.1},
		Rough: 0.03, Noise: 0.01, Common: 0.5, Alike: 0.9, Weight: 4,
	}
}

func (p Prior) factor(name string) FactorPrior {
	if f, ok := p.Factors[name]; ok {
		return f
	}
	return p.Other
}

// exposure is what the overhead counts at a value beside the default: over the steps down, how many halvings short of neutral a worker's samples are.
func (f FactorPrior) exposure(base, value, batch float64) float64 {
	if f.NeutralSamples == 0 || batch <= 0 {
		return 0
	}
	down := math.Log2(base / value)
	return -down*math.Log2(batch/base/f.NeutralSamples) - down*(down-1)/2
}

// covariance is that of the costs at two distances from the default, in steps: of the slope, and of the bends, which add up on the way from the default as
// the integral of a Brownian motion. So what lies far beyond what was tried is uncertain.
func (f FactorPrior) covariance(x, y float64) float64 {
	c := f.Slope * f.Slope * x * y
	if x*y > 0 {
		near, far := min(math.Abs(x), math.Abs(y)), max(math.Abs(x), math.Abs(y))
		c += f.Bend * f.Bend * near * near * (far/2 - near/6)
	}
	return c
}

// point is a setting of a workload, as its distances from the default.
type point struct {
	workload, kind string
	setting        Setting
	moves          []move
}

// move is how far a setting is from the default in one factor, in steps down, and what the overhead counts there.
type move struct {
	factor          string
	steps, exposure float64
}

func (p Prior) point(workload, kind string, base, s Setting, batch float64) point {
	x := point{workload: workload, kind: kind, setting: s}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		if value := base[name]; s[name] > 0 && s[name] != value {
			x.moves = append(x.moves, move{name, math.Log2(value / s[name]), p.factor(name).exposure(value, s[name], batch)})
		}
	}
	return x
}

// expected is the logarithm of the cost beside that at the default, before any epoch.
func (p Prior) expected(x point) float64 {
	sum := 0.0
	for _, m := range x.moves {
		sum -= p.factor(m.factor).Overhead * m.exposure
	}
	return sum
}

// belief is what is expected of the costs of a trial's settings: a Gaussian process over the settings of all workloads known. The scale of its deviations is
// learnt too, so that workloads on which nothing matters make the next probe less promising, and less dangerous.
type belief struct {
	prior   Prior
	process *curve.Process[int]
	points  []point
	levels  map[string]float64 // by workload: the logarithm that its costs are counted from
	scale   float64
	trial   *Trial
	own     Record // of the trial's workload
}

// estimate is a log-normal belief about the cost of an epoch.
type estimate struct{ mean, deviation float64 }

func newBelief(p Prior, t *Trial, known []Record) *belief {
	b := &belief{prior: p, levels: map[string]float64{}, trial: t}
	b.process = curve.NewProcess(0, func(i, k int) float64 { return b.covariance(b.points[i], b.points[k]) })
	known = Learn(known, t)
	b.own = ownRecord(t, known)
	values := 0
	for _, r := range known {
		for _, m := range r.Measured {
			x := p.point(r.Workload, r.Kind, r.Default, m.Setting, r.BatchSize)
			value := math.Log(m.Cost) - p.expected(x)
			if _, ok := b.levels[r.Workload]; !ok {
				b.levels[r.Workload] = value
			}
			b.process.Add(b.place(x), value-b.levels[r.Workload], p.Noise/math.Sqrt(float64(m.Epochs)))
			values++
		}
	}
	// The variance that the surprises speak for, beside the prior's own: an inverse gamma's posterior mean. Each workload's level takes one of them.
	free := float64(values - len(b.levels))
	b.scale = math.Sqrt((p.Weight + b.process.Surprise()) / (p.Weight + free))
	return b
}

func (b *belief) place(x point) int {
	b.points = append(b.points, x)
	return len(b.points) - 1
}

func (b *belief) covariance(x, y point) float64 {
	const level = 1
	same := x.workload == y.workload
	share, c := b.prior.Common, 0.0
	switch {
	case same:
		share, c = 1, level
	case x.kind != "" && x.kind == y.kind:
		share = b.prior.Alike
	}
	for _, m := range x.moves {
		for _, n := range y.moves {
			if m.factor == n.factor {
				f := b.prior.factor(m.factor)
				c += share * (f.covariance(m.steps, n.steps) + f.Doubt*f.Doubt*m.exposure*n.exposure)
			}
		}
	}
	if same && x.setting.Equal(y.setting) {
		c += b.prior.Rough * b.prior.Rough
	}
	return c
}

// cost is what an epoch of the trial costs at a setting.
func (b *belief) cost(s Setting) estimate {
	t := b.trial
	x := b.prior.point(t.Workload, t.Kind, t.Default(), s, t.BatchSize)
	mean, deviation := b.process.Predict(b.place(x))
	return estimate{mean + b.levels[t.Workload] + b.prior.expected(x), deviation * b.scale}
}

// expected is the mean.
func (e estimate) expected() float64 { return math.Exp(e.mean + e.deviation*e.deviation/2) }

// least is the expected lesser of this cost and a certain one.
func (e estimate) least(other float64) float64 {
	if e.deviation == 0 {
		return min(e.expected(), other)
	}
	z := (math.Log(other) - e.mean) / e.deviation
	return e.expected()*normal(z-e.deviation) + other*(1-normal(z))
}

// normal is the distribution function of the standard normal distribution.
func normal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
