package curve

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// StepSample is a step time measured on a configuration; Weight is the number of steps it is the mean of (zero counts
// as one), Error the possible relative error of a time that comes from another job.
type StepSample struct {
	train.Config
	StepSeconds float64 `json:"step_seconds"`
	Weight      float64 `json:"weight"`
	Error       float64 `json:"error,omitempty"`
}

// Fold returns the weighted mean of the samples of each configuration, in a fixed order, without unusable samples. A
// caller that keeps folded samples has a history that does not grow.
func Fold(samples []StepSample) []train.Measured {
	sums := make(map[train.Config]*train.Measured)
	for _, s := range samples {
		if s.Weight == 0 {
			s.Weight = 1
		}
		if !inRange(s.StepSeconds) || !inRange(s.Weight) || !plausible(s.Config) {
			continue
		}
		sum := sums[s.Config]
		if sum == nil {
			sum = &train.Measured{Config: s.Config}
			sums[s.Config] = sum
		}
		sum.Weight += s.Weight
		sum.Error = max(sum.Error, s.Error)
		sum.StepSeconds += (s.StepSeconds - sum.StepSeconds) * s.Weight / sum.Weight
	}
	folded := make([]train.Measured, 0, len(sums))
	for _, sum := range sums {
		folded = append(folded, *sum)
	}
	slices.SortFunc(folded, func(a, b train.Measured) int {
		return cmp.Or(cmp.Compare(a.Workers, b.Workers), cmp.Compare(a.Servers, b.Servers),
			cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.LocalBatch, b.LocalBatch))
	})
	return folded
}

// plausible bounds a configuration to what a cluster can hold.
func plausible(c train.Config) bool {
	const most = 1 << 30
	return c.Workers >= 1 && c.Workers <= most && c.Servers >= 0 && c.Servers <= most &&
		c.Nodes >= 1 && c.Nodes <= most && c.LocalBatch >= 0 && c.LocalBatch <= most
}

// priorStrength is the weight of the prior against one configuration: a coefficient that moves a typical step by as
// much as one worker alone takes costs as much as a residual of 5 %. The distance is counted in time, not in multiples
// of the prior: multiples would hold on to a small prior value however clear the samples are.
const priorStrength = 0.05

// leastCompute bounds ComputeFixed from below, relative to a step of one worker as the prior sees it.
const leastCompute = 0.01

// DevicePrior is the belief about a step on a type of device before any sample. It is zero for processors and simulated
// GPUs.
type DevicePrior struct {
	// LaunchSeconds is the shortest step: its kernels are launched one after the other, however small the batch is.
	// ExchangeSeconds is the shortest exchange of gradients on one node.
	LaunchSeconds, ExchangeSeconds float64
}

// PriorOn returns the prior of a type of device. The times on GPUs were measured on the smallest of Pollux's
// applications, at batch sizes that predictions are not judged on.
func PriorOn(d train.Device) DevicePrior {
	if d.Kind != train.KindGPU || d.Simulated {
		return DevicePrior{}
	}
	return DevicePrior{LaunchSeconds: 0.007, ExchangeSeconds: 0.002}
}

// mostFixed is the largest share of a step that the prior assumes to be independent of the batch.
const mostFixed = 0.9

// allReduce returns PriorAllReduce for a job whose step takes the given seconds on one worker.
func (p DevicePrior) allReduce(typicalBatch int, seconds float64) train.AllReduce {
	a := PriorAllReduce(typicalBatch)
	a.ComputeFixed = math.Max(a.ComputeFixed, math.Min(p.LaunchSeconds/seconds, mostFixed))
	a.ComputePerSample = (1 - a.ComputeFixed) / float64(typicalBatch)
	a.LocalBase += math.Min(p.ExchangeSeconds/seconds, 1) // tiny steps must not overflow
	return a
}

// PriorAllReduce is the belief about a step before any sample, in units of a step of one worker alone at the typical
// batch. A fifth of it does not depend on the batch. Workers on one node add 5 %, and 1 % for each beyond two. A step
// across nodes adds half, 1 % for each worker beyond two, and 10 % for each further worker that shares a node's link. A
// job with one known configuration is therefore expected to scale well on one node and poorly across nodes.
func PriorAllReduce(typicalBatch int) train.AllReduce {
	return train.AllReduce{
		ComputeFixed: 0.2, ComputePerSample: 0.8 / float64(typicalBatch),
		LocalBase: 0.05, LocalPerWorker: 0.01,
		CrossBase: 0.5, CrossPerWorker: 0.01, CrossPerPeer: 0.1, Overlap: 1,
	}
}

// overlaps returns the candidates for the exponent; with few configurations only the first.
func overlaps(configs int) []float64 {
	if configs < 6 {
		return []float64{1}
	}
	return []float64{1, 1.5, 2, 3, 5, 10}
}

// FitStepTime fits the all-reduce form from samples of at least one configuration. Residuals are relative; each
// configuration counts once, however often it was measured, since the misfit of the form outweighs the noise of a mean.
// What the samples leave open stays at the prior of the type of device, scaled to the samples.
func FitStepTime(samples []StepSample, on DevicePrior) (train.Speed, error) {
	measured, typical := configurations(samples)
	if len(measured) == 0 {
		return train.Speed{Kind: train.SpeedAllReduce}, ErrTooFew
	}
	speed := train.Speed{Kind: train.SpeedAllReduce, Measured: measured, TypicalBatch: typical}
	f := newStepFit(measured, typical, on)
	best, least := train.AllReduce{}, math.Inf(1)
	theta := f.linear()
	for _, overlap := range overlaps(len(measured)) {
		var cost float64
		theta, cost = f.refine(theta, overlap)
		// Pollux's penalty keeps the exponent at 1 unless the samples ask for more.
		if cost = math.Sqrt(cost) + 1e-3*(overlap-1)*(overlap-1); cost < least {
			best, least = allReduce(theta, overlap), cost
		}
	}
	// Contradicting samples may leave nothing for the computing, and one worker alone would be infinitely fast.
	best.ComputeFixed = math.Max(best.ComputeFixed, leastCompute*f.prior.scale)
	speed.AllReduce = best
	speed.FitError = relativeRMS(speed)
	return speed, nil
}

// configurations returns the folded samples and the median of their batches, which also replaces missing batches.
func configurations(samples []StepSample) (measured []train.Measured, typical int) {
	measured, typical = Fold(samples), 1
	var known []float64
	for _, m := range measured {
		if m.LocalBatch > 0 {
			known = append(known, float64(m.LocalBatch))
		}
	}
	if len(known) > 0 {
		typical = int(median(known))
	}
	if len(known) == len(measured) {
		return measured, typical
	}
	named := make([]StepSample, 0, len(measured))
	for _, m := range measured {
		m.LocalBatch = cmp.Or(m.LocalBatch, typical)
		named = append(named, StepSample(m))
	}
	return Fold(named), typical
}

// relativeRMS is the root mean square of the fit's relative residuals over the measured configurations.
func relativeRMS(s train.Speed) float64 {
	sum := 0.0
	for _, m := range s.Measured {
		r := s.FittedSeconds(m.Config)/m.StepSeconds - 1
		sum += r * r
	}
	return math.Min(math.Sqrt(sum/float64(len(s.Measured))), 1)
}

const computeColumns, allReduceColumns = 2, 7

// allReduce names the coefficients.
func allReduce(t []float64, overlap float64) train.AllReduce {
	return train.AllReduce{
		ComputeFixed: t[0], ComputePerSample: t[1], LocalBase: t[2], LocalPerWorker: t[3],
		CrossBase: t[4], CrossPerWorker: t[5], CrossPerPeer: t[6], Overlap: overlap,
	}
}

// stepFit is one least-squares problem over the coefficients of train.AllReduce.
type stepFit struct {
	rows  [][]float64 // columns of each configuration, divided by its step time, so that the target is 1
	prior prior
}

// step is a step of one configuration at some coefficients, in fractions of the measured step.
type step struct{ compute, network, whole float64 }

func newStepFit(measured []train.Measured, batch int, on DevicePrior) *stepFit {
	f := &stepFit{}
	shape, scale := on.scaled(measured, batch)
	for _, m := range measured {
		row := []float64{1, float64(m.LocalBatch), 0, 0, 0, 0, 0}
		more := float64(max(m.Workers-2, 0))
		switch {
		case m.Workers > 1 && m.Nodes > 1:
			row[4], row[5], row[6] = 1, more, math.Max(float64(m.Workers)/float64(m.Nodes)-1, 0)
		case m.Workers > 1:
			row[2], row[3] = 1, more
		}
		for i := range row {
			row[i] /= m.StepSeconds
		}
		f.rows = append(f.rows, row)
	}
	f.prior = prior{
		value: []float64{
			shape.ComputeFixed, shape.ComputePerSample, shape.LocalBase, shape.LocalPerWorker,
			shape.CrossBase, shape.CrossPerWorker, shape.CrossPerPeer,
		},
		typical: []float64{1, float64(batch), 1, 2, 1, 14, 3}, // 4 workers on a node, 16 on four
		scale:   scale,
	}
	return f
}

// scaled returns the prior for the measured steps, and the seconds of a step on one worker that they suggest.
func (p DevicePrior) scaled(measured []train.Measured, batch int) (shape train.AllReduce, seconds float64) {
	shape = PriorAllReduce(batch)
	alone := make([]float64, len(measured))
	for range 3 { // the shape depends on the seconds if launches matter; it settles after two rounds
		for i, m := range measured {
			alone[i] = m.StepSeconds / shape.StepSeconds(m.Config)
		}
		seconds = median(alone)
		shape = p.allReduce(batch, seconds)
	}
	return shape, seconds
}

// prior is the belief about the coefficients before any sample: values in units of scale seconds, and the size of each
// column in a typical step.
type prior struct {
	value, typical []float64
	scale          float64
}

// distance is how far one coefficient is from its prior, as a fraction of scale.
func (p prior) distance(j int, coefficient float64) float64 {
	return (coefficient/p.scale - p.value[j]) * p.typical[j]
}

// addTo enters one row for each coefficient.
func (p prior) addTo(eq *equations, strength float64) {
	row := make([]float64, len(p.value))
	for j := range row {
		row[j] = p.typical[j] / p.scale
		eq.add(row, p.value[j]*p.typical[j], strength)
		row[j] = 0
	}
}

// parts returns compute and network of one row at theta, as fractions of the measured step.
func parts(row, theta []float64) (compute, network float64) {
	for j, x := range row {
		if j < computeColumns {
			compute += x * theta[j]
		} else {
			network += x * theta[j]
		}
	}
	return compute, network
}

// cost returns the mean square relative residual plus the distance from the prior, and the steps of the rows.
func (f *stepFit) cost(theta []float64, overlap float64) (float64, []step) {
	sum, steps := 0.0, make([]step, len(f.rows))
	for i, row := range f.rows {
		compute, network := parts(row, theta)
		whole := train.Overlapped(compute, network, overlap)
		steps[i] = step{compute, network, whole}
		sum += (whole - 1) * (whole - 1)
	}
	for j := range theta {
		r := priorStrength * f.prior.distance(j, theta[j])
		sum += r * r
	}
	return sum / float64(len(f.rows)), steps
}

// linear is the solution without overlap.
func (f *stepFit) linear() []float64 { return f.solve(nil, 1) }

// solve is one Gauss-Newton step. At a fixed overlap the step time is homogeneous of degree one in the coefficients. By
// Euler's theorem it equals the sum of coefficient times derivative, so the linearised problem is itself a non-negative
// least-squares problem for the coefficients rather than for their change. Without overlap it needs no steps.
func (f *stepFit) solve(steps []step, overlap float64) []float64 {
	eq := newEquations(allReduceColumns)
	slope := make([]float64, allReduceColumns)
	for i, row := range f.rows {
		byCompute, byNetwork := 1.0, 1.0
		if overlap > 1 && steps[i].whole > 0 {
			byCompute = math.Pow(steps[i].compute/steps[i].whole, overlap-1)
			byNetwork = math.Pow(steps[i].network/steps[i].whole, overlap-1)
		}
		for j, x := range row {
			slope[j] = x * byNetwork
			if j < computeColumns {
				slope[j] = x * byCompute
			}
		}
		eq.add(slope, 1, 1)
	}
	f.prior.addTo(eq, priorStrength)
	return eq.solve()
}

// refine descends at one overlap, halving steps that do not lower the cost, and returns where it arrives and the cost
// there.
func (f *stepFit) refine(theta []float64, overlap float64) (_ []float64, cost float64) {
	cost, steps := f.cost(theta, overlap)
	if overlap == 1 {
		return theta, cost
	}
	for range 8 {
		next, improved := f.solve(steps, overlap), false
		for range 4 {
			if c, at := f.cost(next, overlap); c < cost {
				improved = cost-c > 1e-4*cost
				theta, cost, steps = next, c, at
				break
			}
			mid := make([]float64, len(theta))
			for j := range mid {
				mid[j] = (theta[j] + next[j]) / 2
			}
			next = mid
		}
		if !improved {
			break
		}
	}
	return theta, cost
}
