package baselines

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/optimize"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The parameters of Pollux's step time (OSDI'21, section 3.2), by place.
const (
	computeFixed = iota
	computePerSample
	crossBase
	crossPerWorker
	localBase
	localPerWorker
	overlapExponent
	polluxParameters
)

// leastParameter keeps parameters above zero; parameters without any observation are pinned there, which is optimistic.
const leastParameter = 1e-8

// polluxFit is one fit: the root mean square errors of the logarithms of the pass and of the whole step, plus
// penalties that keep the exponent small and prefer networks whose cost does not grow with the workers.
type polluxFit struct {
	seen   []train.Ran
	pinned [polluxParameters]bool
	value  [polluxParameters]float64
	free   []int
}

// fitPollux is Pollux's fit. The pass is observed apart from the exchange of gradients.
func fitPollux(seen []train.Ran) train.Speed {
	if len(seen) == 0 {
		return train.Speed{Kind: train.SpeedAllReduce}
	}
	f := newPolluxFit(seen)
	best, least := f.value, math.Inf(1)
	for _, overlap := range []float64{1.1, 2, 5} {
		if p, cost := f.minimise(overlap); cost < least {
			best, least = p, cost
		}
	}
	if !slices.ContainsFunc(seen, func(s train.Ran) bool { return s.Nodes > 1 }) {
		// Before any gang over several nodes has run, the network between nodes is assumed to be no faster than that
		// inside.
		best[crossBase] = math.Max(best[crossBase], 1.1*best[localBase])
		best[crossPerWorker] = math.Max(best[crossPerWorker], 1.1*best[localPerWorker])
	}
	speed := train.Speed{Kind: train.SpeedAllReduce, AllReduce: train.AllReduce{
		ComputeFixed: best[computeFixed], ComputePerSample: best[computePerSample], LocalBase: best[localBase], LocalPerWorker: best[localPerWorker],
		CrossBase: best[crossBase], CrossPerWorker: best[crossPerWorker], Overlap: best[overlapExponent],
	}}
	for _, s := range seen {
		speed.Measured = append(speed.Measured, train.Measured{Config: s.Config, StepSeconds: s.StepSeconds, Weight: 1})
	}
	return speed
}

func newPolluxFit(seen []train.Ran) *polluxFit {
	f := &polluxFit{seen: seen, value: [polluxParameters]float64{0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1}}
	pin := func(parameter int, value float64) { f.pinned[parameter], f.value[parameter] = true, value }
	one := func(test func(train.Ran) bool) bool { return slices.ContainsFunc(seen, test) }
	oneBatch := !one(func(s train.Ran) bool { return s.LocalBatch != seen[0].LocalBatch })
	several := one(func(s train.Ran) bool { return s.Nodes > 1 })
	together := one(func(s train.Ran) bool { return s.Nodes == 1 && s.Workers > 1 })
	many := one(func(s train.Ran) bool { return s.Workers > 2 })
	pass := 0.0
	for _, s := range seen {
		pass += (s.StepSeconds - s.SyncSeconds) / float64(len(seen))
	}
	if oneBatch {
		pin(computeFixed, pass/2)
	}
	if !several {
		pin(crossBase, leastParameter)
	}
	if !several || !many {
		pin(crossPerWorker, leastParameter)
	}
	if !together {
		pin(localBase, leastParameter)
	}
	if !together || !many {
		pin(localPerWorker, leastParameter)
	}
	for i := range f.pinned {
		if !f.pinned[i] {
			f.free = append(f.free, i)
		}
	}
	return f
}

// decode gives the parameters at a point of the search: exponents keep them positive, a logistic keeps the overlap
// between 1 and 10.
func (f *polluxFit) decode(x []float64) (p, slope [polluxParameters]float64) {
	p = f.value
	for k, i := range f.free {
		if i == overlapExponent {
			s := 1 / (1 + math.Exp(-x[k]))
			p[i], slope[i] = 1+9*s, 9*s*(1-s)
			continue
		}
		e := math.Exp(math.Min(x[k], 50))
		p[i], slope[i] = leastParameter+e, e
	}
	return p, slope
}

// minimise searches from the usual start at one overlap.
func (f *polluxFit) minimise(overlap float64) ([polluxParameters]float64, float64) {
	start := make([]float64, len(f.free))
	for k, i := range f.free {
		start[k] = math.Log(f.value[i])
		if i == overlapExponent {
			start[k] = -math.Log(9/(overlap-1) - 1)
		}
	}
	problem := optimize.Problem{
		Func: func(x []float64) float64 {
			p, _ := f.decode(x)
			return f.cost(p, nil)
		},
		Grad: func(grad, x []float64) {
			p, slope := f.decode(x)
			var by [polluxParameters]float64
			f.cost(p, &by)
			for k, i := range f.free {
				grad[k] = by[i] * slope[i]
			}
		},
	}
	settings := &optimize.Settings{MajorIterations: 60, Converger: &optimize.FunctionConverge{Absolute: 1e-6, Iterations: 5}}
	found, err := optimize.Minimize(problem, start, settings, &optimize.BFGS{})
	if found == nil || err != nil && math.IsNaN(found.F) {
		p, _ := f.decode(start)
		return p, f.cost(p, nil)
	}
	p, _ := f.decode(found.X)
	return p, found.F
}

// cost is the objective; by, where given, takes its derivatives.
func (f *polluxFit) cost(p [polluxParameters]float64, by *[polluxParameters]float64) float64 {
	const tiny = 1e-12 // keeps the roots smooth where the fit is perfect
	var passErrors, stepErrors float64
	var passBy, stepBy [polluxParameters]float64
	for _, s := range f.seen {
		passErrors += squareOf(f.pass(p, s, &passBy))
		stepErrors += squareOf(f.whole(p, s, &stepBy))
	}
	n := float64(len(f.seen))
	passRoot, stepRoot := math.Sqrt(passErrors/n+tiny), math.Sqrt(stepErrors/n+tiny)
	cross, local := p[crossPerWorker]/p[crossBase], p[localPerWorker]/p[localBase]
	if by != nil {
		for i := range by {
			by[i] = passBy[i]/(n*passRoot) + stepBy[i]/(n*stepRoot)
		}
		by[overlapExponent] += 2e-3 * (p[overlapExponent] - 1)
		by[crossPerWorker] += 2e-2 * cross / p[crossBase]
		by[crossBase] -= 2e-2 * cross * cross / p[crossBase]
		by[localPerWorker] += 2e-2 * local / p[localBase]
		by[localBase] -= 2e-2 * local * local / p[localBase]
	}
	return passRoot + stepRoot + 1e-3*squareOf(p[overlapExponent]-1) + 1e-2*(cross*cross+local*local)
}

func squareOf(x float64) float64 { return x * x }

// pass is the error of the logarithm of one pass; half the derivatives of its square are added to by.
func (f *polluxFit) pass(p [polluxParameters]float64, s train.Ran, by *[polluxParameters]float64) float64 {
	predicted := p[computeFixed] + p[computePerSample]*float64(s.LocalBatch)
	miss := math.Log(predicted) - math.Log(math.Max(s.StepSeconds-s.SyncSeconds, leastParameter))
	by[computeFixed] += miss / predicted
	by[computePerSample] += miss * float64(s.LocalBatch) / predicted
	return miss
}

// whole is the same for the whole step.
func (f *polluxFit) whole(p [polluxParameters]float64, s train.Ran, by *[polluxParameters]float64) float64 {
	compute, network := p[computeFixed]+p[computePerSample]*float64(s.LocalBatch), leastParameter
	base, per := -1, -1
	more := math.Max(float64(s.Workers-2), leastParameter)
	switch {
	case s.Nodes > 1:
		base, per = crossBase, crossPerWorker
	case s.Workers > 1:
		base, per = localBase, localPerWorker
	}
	if base >= 0 {
		network = p[base] + p[per]*more
	}
	g := p[overlapExponent]
	long := math.Max(compute, network)
	a, b := math.Pow(compute/long, g), math.Pow(network/long, g)
	byCompute, byNetwork := a/(a+b), b/(a+b)
	logStep := math.Log(long) + math.Log(a+b)/g
	miss := logStep - math.Log(s.StepSeconds)
	by[computeFixed] += miss * byCompute / compute
	by[computePerSample] += miss * byCompute * float64(s.LocalBatch) / compute
	if base >= 0 {
		by[base] += miss * byNetwork / network
		by[per] += miss * byNetwork * more / network
	}
	by[overlapExponent] += miss * (byCompute*math.Log(compute) + byNetwork*math.Log(network) - logStep) / g
	return miss
}
