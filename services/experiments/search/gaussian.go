package search

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

const (
	// candidates is the number of random points among which the best is sought if the space is not smaller, and
	// neighbours the number drawn around that one, twice.
	candidates = 1000
	neighbours = 200
	// mostTold bounds the trials that a process learns from: its cost grows with their cube, half a second for these,
	// and all experiments wait for it.
	mostTold = 300
)

// gaussian proposes the point of greatest expected improvement, times the probability that it keeps all constraints
// (Jones, Schonlau and Welch 1998; Gardner et al., ICML 2014). Trials without a result count as if their result were
// the expected one, so that several can run at once.
type gaussian struct {
	random
	ordered []bool // of each parameter
}

func newGaussian(space Space, seed uint64) gaussian {
	g := gaussian{random: random{space, seed}}
	for _, p := range space {
		g.ordered = append(g.ordered, dimension(p).ordered())
	}
	return g
}

// first returns the number of evenly spread points before anything is assumed about the objective.
func (g gaussian) first() int { return max(5, len(g.space)+2) }

func (g gaussian) propose(trials []Trial) (Params, bool) {
	tried := g.space.tried(trials)
	known := g.observe(told(trials))
	if len(trials) < g.first() || len(known.scores) < 2 && len(trials) < 3*g.first() {
		if p := g.space.At(spread(g.seed, len(trials), len(g.space))); !tried[g.space.key(p)] {
			return p, true
		}
		return g.random.propose(trials)
	}
	if len(known.scores) == 0 {
		return g.random.propose(trials) // all have failed so far, or reported nothing: there is nothing to learn from
	}
	b := g.learn(known)
	r := rand.New(rand.NewPCG(g.seed, uint64(len(trials))))
	best, most := Params(nil), math.Inf(-1)
	consider := func(p Params) {
		if tried[g.space.key(p)] {
			return
		}
		if gain := b.gain(g.space.coordinates(p)); gain > most {
			best, most = p, gain
		}
	}
	if all, ok := g.space.Finite(candidates); ok {
		for _, p := range all {
			consider(p)
		}
		return best, best != nil
	}
	for range candidates {
		consider(g.space.random(r))
	}
	for _, width := range []float64{0.1, 0.02} {
		centres := [][]float64{b.best}
		if best != nil {
			centres = append(centres, g.space.coordinates(best))
		}
		for i := range neighbours {
			consider(g.space.near(centres[i%len(centres)], width, r))
		}
	}
	if best == nil {
		return g.space.untried(tried)
	}
	return best, true
}

// near draws a point around another. Unordered values are sometimes drawn again, and so are values that the other point
// lacks.
func (s Space) near(centre []float64, width float64, r *rand.Rand) Params {
	const anew = 0.2
	unit := make([]float64, len(s))
	for i, p := range s {
		drawn, step, chance := r.Float64(), r.NormFloat64(), r.Float64()
		switch {
		case centre[i] == absent, !dimension(p).ordered() && chance < anew:
			unit[i] = drawn
		case dimension(p).ordered():
			if p.Kind == Choice { // sometimes at least to the next value
				step *= max(1, 1/(width*float64(2*len(p.Values))))
			}
			unit[i] = centre[i] + width*step
		default:
			unit[i] = centre[i]
		}
	}
	return s.At(unit)
}

// observations are the data of a search.
type observations struct {
	points  [][]float64 // coordinates, of each score
	scores  []float64
	slack   [][]float64 // by constraint, of each score
	ran     []float64   // of each point: 1, or -1 if the trial failed
	all     [][]float64 // all points with an outcome of any kind
	pending [][]float64 // points without a result yet
}

// told returns the trials to learn from. Of many these are the newest and, of those before, the best.
func told(trials []Trial) []Trial {
	if len(trials) <= mostTold {
		return trials
	}
	from := len(trials) - mostTold/2
	earlier := slices.Clone(trials[:from])
	slices.SortStableFunc(earlier, func(x, y Trial) int {
		a, _ := x.At(x.last())
		b, _ := y.At(y.last())
		return cmp.Compare(b, a)
	})
	return append(earlier[:mostTold/2], trials[from:]...)
}

// observe takes the trials' scores at an epoch that a third of them reached, and enough to learn from (as Falkner,
// Klein and Hutter, ICML 2018, choose a budget): whole trainings if there are some, else the results of the first
// trials so far.
func (g gaussian) observe(trials []Trial) observations {
	var last []int
	for _, t := range trials {
		if epoch := t.last(); epoch > 0 && t.State != Failed {
			last = append(last, epoch)
		}
	}
	epoch := 0
	if slices.Sort(last); len(last) > 0 {
		epoch = last[max(len(last)-max(g.first(), len(last)/3), 0)]
	}
	var o observations
	for _, t := range trials {
		x := g.space.coordinates(t.Params)
		r, known := t.result(epoch)
		switch {
		case t.State == Failed:
			o.all, o.ran = append(o.all, x), append(o.ran, -1)
		case known:
			o.all, o.ran = append(o.all, x), append(o.ran, 1)
			o.points, o.scores = append(o.points, x), append(o.scores, r.Score)
			for i, slack := range r.Slack {
				if i == len(o.slack) {
					o.slack = append(o.slack, nil)
				}
				o.slack[i] = append(o.slack[i], slack)
			}
		case t.State == Running || t.State == Paused:
			o.pending = append(o.pending, x)
		}
	}
	return o
}

// last returns the newest epoch of the trial with a result; 0 means none.
func (t Trial) last() int {
	if len(t.Results) == 0 {
		return 0
	}
	return t.Results[len(t.Results)-1].Epoch
}

// result returns the result of a trial at an epoch, or its last result if it ended before.
func (t Trial) result(epoch int) (Result, bool) {
	if t.last() < epoch && t.State != Stopped && t.State != Ended {
		return Result{}, false
	}
	for _, r := range slices.Backward(t.Results) {
		if r.Epoch <= epoch {
			return r, true
		}
	}
	return Result{}, false
}

// belief is the expectation at points.
type belief struct {
	objective model
	most      float64   // the best score so far that breaks no constraint, as the objective counts
	best      []float64 // where that was
	limits    []model   // of each constraint, by how much it is kept
}

func (g gaussian) learn(o observations) belief {
	b := belief{most: math.Inf(-1)}
	scores := clipped(o.scores)
	mean, deviation := stat.PopMeanStdDev(scores, nil)
	floats.AddConst(-mean, scores)
	floats.Scale(1/max(deviation, tiny), scores)
	b.objective = g.fit(o.points, scores)
	for i, x := range o.points {
		kept := !slices.ContainsFunc(o.slack, func(s []float64) bool { return !(s[i] >= 0) })
		if b.best == nil || kept && scores[i] > b.most {
			b.best = x
		}
		if kept {
			b.most = max(b.most, scores[i])
		}
	}
	for _, x := range o.pending {
		value, _ := b.objective.predict(x)
		b.objective.add(x, value)
	}
	for _, slack := range o.slack {
		slack = clipped(slack)
		floats.Scale(1/max(stat.PopStdDev(slack, nil), tiny), slack)
		b.limits = append(b.limits, g.fit(o.points, slack))
	}
	// A step, which would be mistaken for roughness everywhere if lengths were fitted to it.
	if slices.Contains(o.ran, -1) {
		b.limits = append(b.limits, g.model(o.all, o.ran, g.usual(), usualNoise))
	}
	return b
}

// tiny is the smallest positive amount that counts.
const tiny = 1e-12

// clipped copies values without outliers that would dwarf the others: a diverged training says no more than a bad one.
func clipped(values []float64) []float64 {
	finite := slices.DeleteFunc(slices.Clone(values), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	if len(finite) == 0 {
		return make([]float64, len(values))
	}
	slices.Sort(finite)
	n := len(finite)
	low, middle := finite[0], finite[n/2]
	if spread := finite[3*n/4] - finite[n/4]; spread > 0 {
		low = max(low, middle-3*spread)
	}
	clipped := slices.Clone(values)
	for i, x := range clipped {
		if !(x >= low) {
			clipped[i] = low
		}
		clipped[i] = min(clipped[i], finite[n-1])
	}
	return clipped
}

// gain returns the value of trying a point.
func (b belief) gain(x []float64) float64 {
	worth := 1.0
	if !math.IsInf(b.most, -1) { // else any point that keeps the constraints will do
		value, deviation := b.objective.predict(x)
		worth = curve.ExpectedImprovement(value-b.most, deviation)
	}
	for _, limit := range b.limits {
		value, deviation := limit.predict(x)
		worth *= 0.5 * math.Erfc(-value/max(deviation, tiny)/math.Sqrt2)
	}
	return worth
}

// model is a Gaussian process over points, each identified by its address.
type model struct {
	process *curve.Process[*point]
	noise   float64
}

type point struct{ at []float64 } // coordinates

func (m model) add(x []float64, value float64) { m.process.Add(&point{x}, value, m.noise) }

func (m model) predict(x []float64) (value, deviation float64) { return m.process.Predict(&point{x}) }

// fit chooses the length scale of each dimension, and the noise, by their likelihood, one after the other.
func (g gaussian) fit(points [][]float64, values []float64) model {
	lengths, noise := g.usual(), usualNoise
	best := g.model(points, values, lengths, noise)
	most := plausibility(best, lengths)
	try := func(target *float64, options []float64) {
		kept := *target
		for _, option := range options {
			*target = option
			m := g.model(points, values, slices.Clone(lengths), noise)
			if p := plausibility(m, lengths); p > most {
				best, most, kept = m, p, option
			}
		}
		*target = kept
	}
	for range 2 {
		for d := range lengths {
			try(&lengths[d], []float64{0.1, 0.2, 0.35, 0.7, 1.2, 2.5})
		}
		try(&noise, []float64{0.003, 0.03, 0.1, 0.3})
	}
	return best
}

// Typical values before any observation: half of a range, and a tenth of the values' deviation.
const (
	usualLength = 0.5
	usualNoise  = 0.1
)

func (g gaussian) usual() []float64 {
	lengths := make([]float64, len(g.space))
	for d := range lengths {
		lengths[d] = usualLength
	}
	return lengths
}

// plausibility is the log likelihood of the observations plus that of the lengths: the typical one, within a factor of
// 2.7.
func plausibility(m model, lengths []float64) float64 {
	p := m.process.LogLikelihood()
	for _, l := range lengths {
		away := math.Log(l / usualLength)
		p -= away * away / 2
	}
	return p
}

func (g gaussian) model(points [][]float64, values, lengths []float64, noise float64) model {
	m := model{noise: noise}
	m.process = curve.NewProcess(stat.Mean(values, nil), func(a, b *point) float64 {
		return curve.Matern(g.distance(a.at, b.at, lengths))
	})
	for i, x := range points {
		m.add(x, values[i])
	}
	return m
}

// distance returns the distance of two points in length scales. A parameter that only one of them has counts like an
// unordered parameter that differs.
func (g gaussian) distance(x, y, lengths []float64) float64 {
	sum := 0.0
	for d, ordered := range g.ordered {
		apart := x[d] - y[d]
		if apart != 0 && (x[d] == absent || y[d] == absent || !ordered) {
			apart = 1
		}
		apart /= lengths[d]
		sum += apart * apart
	}
	return math.Sqrt(sum)
}
