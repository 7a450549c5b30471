package search

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

const (
	// candidates is of how many random points the best is sought, where the space is not as small, and neighbours how many are drawn around that one, twice.
	candidates = 1000
	neighbours = 200
)

// gaussian proposes the point of greatest expected improvement, times the probability that it keeps all constraints (Jones, Schonlau and Welch 1998; Gardner
// et al., ICML 2014). Trials without a result count as if they came out as expected, so that several can run at once.
type gaussian struct {
	random
	ordered []bool // of each parameter
}

func newGaussian(space Space, seed uint64) gaussian {
	g := gaussian{random: random{space, seed}}
	for _, p := range space {
		g.ordered = append(g.ordered, p.ordered())
	}
	return g
}

// first is how many points are spread evenly before anything is believed of the objective.
func (g gaussian) first() int { return max(5, len(g.space)+2) }

func (g gaussian) propose(trials []Trial) (Params, bool) {
	tried := g.space.tried(trials)
	known := g.observe(trials)
	if len(trials) < g.first() || len(known.scores) < 2 && len(trials) < 3*g.first() {
		if p := g.space.At(spread(g.seed, len(trials), len(g.space))); !tried[g.space.key(p)] {
			return p, true
		}
		return g.random.propose(trials)
	}
	if len(known.scores) == 0 {
		return g.random.propose(trials) // all have failed so far, or told nothing: there is nothing to learn from
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

// near draws a point around another. What has no order is drawn anew now and then, and so is what the other point does not have.
func (s Space) near(centre []float64, width float64, r *rand.Rand) Params {
	const anew = 0.2
	unit := make([]float64, len(s))
	for i, p := range s {
		drawn, step, chance := r.Float64(), r.NormFloat64(), r.Float64()
		switch {
		case centre[i] == absent, !p.ordered() && chance < anew:
			unit[i] = drawn
		case p.ordered():
			if p.Kind == Choice { // to the next value at least, now and then
				step *= max(1, 1/(width*float64(2*len(p.Values))))
			}
			unit[i] = centre[i] + width*step
		default:
			unit[i] = centre[i]
		}
	}
	return s.At(unit)
}

// observations are what a search knows.
type observations struct {
	points  [][]float64 // coordinates, of each score
	scores  []float64
	slack   [][]float64 // by constraint, of each score
	ran     []float64   // of each of all: 1, or -1 where the trial failed
	all     [][]float64 // all points that ended one way or another
	pending [][]float64 // points whose result is not known
}

// observe takes the trials' scores at an epoch to which a third of them came, and enough to learn from (as Falkner, Klein and Hutter, ICML 2018, choose a
// budget): whole trainings where there are some, and what the first trials have so far until then.
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

// last is the newest epoch that the trial has a result of; 0 is none.
func (t Trial) last() int {
	if len(t.Results) == 0 {
		return 0
	}
	return t.Results[len(t.Results)-1].Epoch
}

// result is what a trial had at an epoch; of one that came to an end before, what it had at last.
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

// belief is what is expected of points.
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
	if slices.Contains(o.ran, -1) { // a step, which would be taken for roughness everywhere if lengths were fitted to it
		b.limits = append(b.limits, g.model(o.all, o.ran, g.usual(), usualNoise))
	}
	return b
}

// tiny is more than nothing.
const tiny = 1e-12

// clipped copies values without those that would dwarf the others: a training that diverged says no more than a bad one.
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

// gain is what a point is worth trying.
func (b belief) gain(x []float64) float64 {
	worth := 1.0
	if !math.IsInf(b.most, -1) { // else any point that keeps the constraints is what is sought
		value, deviation := b.objective.predict(x)
		worth = curve.ExpectedImprovement(value-b.most, deviation)
	}
	for _, limit := range b.limits {
		value, deviation := limit.predict(x)
		worth *= 0.5 * math.Erfc(-value/max(deviation, tiny)/math.Sqrt2)
	}
	return worth
}

// model is a Gaussian process over points, each known by its address.
type model struct {
	process *curve.Process[*point]
	noise   float64
}

type point struct{ at []float64 } // coordinates

func (m model) add(x []float64, value float64) { m.process.Add(&point{x}, value, m.noise) }

func (m model) predict(x []float64) (value, deviation float64) { return m.process.Predict(&point{x}) }

// fit chooses length scales, one for each dimension, and the noise by their likelihood, one after the other.
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

// What is usual before anything was seen: half of a range, and a tenth of the values' deviation.
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

// plausibility is the log likelihood of what was seen, and of lengths before anything was: the usual one, give or take a factor of 2.7.
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

// distance of two points in length scales. A parameter that only one of them has is as far as one that has no order and differs.
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
