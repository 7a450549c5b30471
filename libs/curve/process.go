package curve

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// Process is a Gaussian process: a belief about a function some values of which were measured, with its uncertainty
// (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1). The Cholesky factor grows
// by one row per measurement. The solution for each queried point is kept, so a repeated query costs only what was
// measured since.
type Process[X comparable] struct {
	mean   float64
	kernel func(x, y X) float64
	values []float64
	points []X
	factor [][]float64 // lower triangle of the Cholesky factor of the measurements' covariance
	white  []float64   // the factor's inverse, times the values less the mean
	solved map[X][]float64
}

// NewProcess starts from a mean and a covariance function, which must be symmetric.
func NewProcess[X comparable](mean float64, kernel func(x, y X) float64) *Process[X] {
	return &Process[X]{mean: mean, kernel: kernel, solved: map[X][]float64{}}
}

// Add adds a value measured with an error of the given standard deviation, which must not be 0.
func (p *Process[X]) Add(x X, value, deviation float64) {
	row := p.solve(x)
	rest := p.kernel(x, x) + deviation*deviation - floats.Dot(row, row)
	// Appending to a clone leaves the slice kept for x free to grow.
	p.factor = append(p.factor, append(append([]float64(nil), row...), math.Sqrt(max(rest, deviation*deviation))))
	p.points, p.values = append(p.points, x), append(p.values, value)
	p.whiten(len(p.values) - 1)
}

// Replace corrects the value of measurement i, counted from 0 in the order of Add. Its error stays.
func (p *Process[X]) Replace(i int, value float64) {
	p.values[i] = value
	p.whiten(i)
}

func (p *Process[X]) whiten(from int) {
	p.white = p.white[:from]
	for i := from; i < len(p.values); i++ {
		row := p.factor[i]
		p.white = append(p.white, (p.values[i]-p.mean-floats.Dot(row[:i], p.white))/row[i])
	}
}

// Predict returns the expected value at a point and its standard deviation, without measurement errors.
func (p *Process[X]) Predict(x X) (value, deviation float64) {
	w := p.solve(x)
	return p.mean + floats.Dot(w, p.white), math.Sqrt(max(p.kernel(x, x)-floats.Dot(w, w), 0))
}

// Surprise measures how far the values lie from the earlier belief: the sum of their squared independent deviations. It
// is about their number if the mean, the covariances and the errors were right.
func (p *Process[X]) Surprise() float64 { return floats.Dot(p.white, p.white) }

// LogLikelihood tells how well the covariance explains the measurements (ibid., equation 2.30); of two kernels the one
// with the greater value is more plausible.
func (p *Process[X]) LogLikelihood() float64 {
	sum := -float64(len(p.values)) / 2 * math.Log(2*math.Pi)
	for i, w := range p.white {
		sum -= w*w/2 + math.Log(p.factor[i][i])
	}
	return sum
}

// ExpectedImprovement returns by how much a value is expected to exceed the best one, given its expected lead and
// deviation; 0 if it does not (Jones, Schonlau and Welch, "Efficient Global Optimization", 1998, equation 15).
func ExpectedImprovement(ahead, deviation float64) float64 {
	if deviation == 0 {
		return max(ahead, 0)
	}
	z := ahead / deviation
	return ahead*0.5*math.Erfc(-z/math.Sqrt2) + deviation*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)
}

// Matern returns the correlation of two values at a distance in length scales (Matérn, 5/2).
func Matern(distance float64) float64 {
	x := math.Sqrt(5) * distance
	return (1 + x + x*x/3) * math.Exp(-x)
}

// solve returns the factor's inverse times the covariances of x with the measurements.
func (p *Process[X]) solve(x X) []float64 {
	w := p.solved[x]
	for i := len(w); i < len(p.factor); i++ {
		row := p.factor[i]
		w = append(w, (p.kernel(x, p.points[i])-floats.Dot(row[:i], w))/row[i])
	}
	p.solved[x] = w
	return w
}
