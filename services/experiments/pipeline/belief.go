package pipeline

import (
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
)

// Prior is the prior belief about system parameters: standard deviations of the logarithm of an epoch's cost, where a
// step is a factor of two.
type Prior struct {
	// Factors are the better-known factors, by name; Other holds for the rest.
	Factors map[string]FactorPrior
	Other   FactorPrior
	// Rough is the deviation of a setting's own effect, Noise that of one epoch.
	Rough, Noise float64
	// Common is the share of a shape's variance that all workloads share, Alike the share among workloads of one kind.
	Common, Alike float64
	// Weight is the number of observed surprises that this prior's own scale is worth.
	Weight float64
}

// FactorPrior is the belief about one factor.
type FactorPrior struct {
	// Slope is the deviation of the cost per step away from the default, Bend that of the slope's change from one step
	// to the next.
	Slope, Bend float64
	// Overhead is the expected saving of a step down for each halving of a worker's samples per batch below
	// NeutralSamples: less is then computed between two synchronisations, and more workers wait in each. Doubt is its
	// standard deviation.
	Overhead, Doubt, NeutralSamples float64
}

// StandardPrior assumes that half the cores may cost a fifth more or less, and that sufficient memory changes little.
// Slope and overhead of cores come from a published grid of cores and batch sizes that contains none of the replayed
// epochs (docs/tuning.md).
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

// exposure is the weight of the overhead at a value relative to the default: over the steps down, the number of
// halvings of a worker's samples below neutral.
func (f FactorPrior) exposure(base, value, batch float64) float64 {
	if f.NeutralSamples == 0 || batch <= 0 {
		return 0
	}
	down := math.Log2(base / value)
	return -down*math.Log2(batch/base/f.NeutralSamples) - down*(down-1)/2
}

// covariance is that of the costs at two distances from the default, in steps: of the slope, and of the bends, which
// add up on the way from the default as the integral of a Brownian motion. Settings far beyond those tried are
// therefore uncertain.
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
	setting        contract.SettingValues
	moves          []move
}

// move is the distance of a setting from the default in one factor, in steps down, and the weight of the overhead
// there.
type move struct {
	factor          string
	steps, exposure float64
}

func (p Prior) point(workload, kind string, base, s contract.SettingValues, batch float64) point {
	x := point{workload: workload, kind: kind, setting: s}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		if value := base[name]; s[name] > 0 && s[name] != value {
			x.moves = append(x.moves, move{name, math.Log2(value / s[name]), p.factor(name).exposure(value, s[name], batch)})
		}
	}
	return x
}

// expected is the logarithm of the cost relative to that at the default, before any epoch.
func (p Prior) expected(x point) float64 {
	sum := 0.0
	for _, m := range x.moves {
		sum -= p.factor(m.factor).Overhead * m.exposure
	}
	return sum
}

// belief is the expectation of the costs of a trial's settings: a Gaussian process over the settings of all known
// workloads. It also learns the scale of the deviations, so that workloads on which nothing matters make the next probe
// less promising, and less dangerous.
type belief struct {
	prior   Prior
	process *curve.Process[int]
	points  []point
	levels  map[string]float64 // by workload: the logarithm relative to which its costs are counted
	scale   float64
	trial   *Trial
	own     costs // those of the trial's workload
}

// estimate is a log-normal belief about the cost of an epoch.
type estimate struct{ mean, deviation float64 }

func newBelief(p Prior, t *Trial, known []contract.WorkloadCosts) *belief {
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
	// The variance indicated by the surprises, combined with the prior's own: an inverse gamma's posterior mean. Each
	// workload's level takes one degree of freedom.
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

// cost is the cost of an epoch of the trial at a setting.
func (b *belief) cost(s contract.SettingValues) estimate {
	t := b.trial
	x := b.prior.point(t.Workload, t.Kind, t.Default(), s, t.BatchSize)
	mean, deviation := b.process.Predict(b.place(x))
	return estimate{mean + b.levels[t.Workload] + b.prior.expected(x), deviation * b.scale}
}

// expected is the mean.
func (e estimate) expected() float64 { return math.Exp(e.mean + e.deviation*e.deviation/2) }

// least is the expected minimum of this cost and a certain one.
func (e estimate) least(other float64) float64 {
	if e.deviation == 0 {
		return min(e.expected(), other)
	}
	z := (math.Log(other) - e.mean) / e.deviation
	return e.expected()*normal(z-e.deviation) + other*(1-normal(z))
}

// normal is the distribution function of the standard normal distribution.
func normal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
