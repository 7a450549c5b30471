// Package curve turns observations of a job into a train.Model: it fits loss, step time and memory, and corrects
// estimates that turned out wrong. Everything is pure and deterministic; bad points (NaN, infinite, not positive) are
// ignored. The package decides nothing from the models.
package curve

import (
	"errors"
	"math"
	"slices"
	"sort"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// ErrTooFew says that a fit has fewer usable points than its form needs.
var ErrTooFew = errors.New("too few points")

// Point is the training loss at the end of an epoch (1 is the first; fractions count).
type Point struct {
	Epoch float64 `json:"epoch"`
	Loss  float64 `json:"loss"`
}

// MinConvergencePoints is the number of different epochs FitConvergence needs.
const MinConvergencePoints = 3

const (
	offsetCandidates = 25 // of the first scan over B2
	offsetRefined    = 10 // of each closer scan around the best
	offsetRounds     = 2
	reweightings     = 3
	// noiseFloor is the least noise assumed of a normalised loss: three points always fit, so smaller residuals prove
	// nothing.
	noiseFloor = 0.003
	// likelyQuantile is the two-sided 90 % interval for the offset B2.
	likelyQuantile = 0.95
	deciles        = 10
)

// FitConvergence fits Optimus's loss curve 1/(B0*k+B1)+B2 (EuroSys'18, section 3.1). It replaces outliers, divides
// losses by their maximum and, for each candidate B2, finds B0 and B1 by NNLS, since the curve is then linear in them.
// Points of the last third of the epochs weigh most. If an epoch was reported twice, the last report counts. Likely
// holds the curves over the 90 % profile-likelihood interval of B2, the coefficient that says where the loss ends: both
// ends of the interval and, in between, curves of equal probability.
func FitConvergence(points []Point) (train.Convergence, error) {
	points = usable(points)
	if len(points) < MinConvergencePoints {
		return train.Convergence{Points: len(points)}, ErrTooFew
	}
	points = withoutOutliers(points)
	scale := 0.0
	for _, p := range points {
		scale = math.Max(scale, p.Loss)
	}
	for i := range points {
		points[i].Loss /= scale
	}
	scan := newOffsetScan(points)
	best := scan.run()
	fit := train.Convergence{Hyperbola: best.Hyperbola, Scale: scale, Points: len(points), RMSE: math.Sqrt(best.squares)}
	fit.Likely = scan.likely(best)
	return fit, nil
}

// usable returns the points with a finite positive loss, one per epoch, in ascending order of epochs.
func usable(points []Point) []Point {
	kept := make([]Point, 0, len(points))
	for _, p := range points {
		if inRange(p.Loss) && p.Epoch >= 0 && p.Epoch < 1e9 {
			kept = append(kept, p)
		}
	}
	slices.SortStableFunc(kept, func(a, b Point) int {
		if a.Epoch < b.Epoch {
			return -1
		}
		if a.Epoch > b.Epoch {
			return 1
		}
		return 0
	})
	unique := kept[:0]
	for i, p := range kept {
		if i+1 == len(kept) || kept[i+1].Epoch != p.Epoch {
			unique = append(unique, p)
		}
	}
	return unique
}

// inRange reports whether x is positive and of a size whose squares and inverses stay finite.
func inRange(x float64) bool { return x > 1e-30 && x < 1e30 }

// withoutOutliers replaces each inner loss outside the range of its neighbours by the mean of the two next to it. The
// neighbours are two on each side; their range is widened by half so that ordinary noise passes. The first and the last
// point stay: the first is naturally the highest, and nothing yet confirms or contradicts the last.
func withoutOutliers(points []Point) []Point {
	clean := slices.Clone(points)
	for i := 1; i+1 < len(points); i++ {
		low, high := math.Inf(1), math.Inf(-1)
		for j := max(i-2, 0); j <= min(i+2, len(points)-1); j++ {
			if j != i {
				low, high = math.Min(low, points[j].Loss), math.Max(high, points[j].Loss)
			}
		}
		margin := (high - low) / 2
		if l := points[i].Loss; l < low-margin || l > high+margin {
			clean[i].Loss = (points[i-1].Loss + points[i+1].Loss) / 2
		}
	}
	return clean
}

// recencyWeights returns Optimus's weights: three equal segments that weigh 1, 16 and 256, here scaled to a sum of 1.
func recencyWeights(n int) []float64 {
	weights, sum := make([]float64, n), 0.0
	for i := range weights {
		weights[i] = math.Pow(16, float64(3*i/n))
		sum += weights[i]
	}
	for i := range weights {
		weights[i] /= sum
	}
	return weights
}

// candidate is the best curve for one B2, with its weighted mean square residual.
type candidate struct {
	train.Hyperbola
	squares float64
}

// offsetScan tries values of B2.
type offsetScan struct {
	points  []Point // normalised
	weights []float64
	tried   []candidate
	expect  []float64 // scratch: the expected loss above the offset
}

func newOffsetScan(points []Point) *offsetScan {
	return &offsetScan{points: points, weights: recencyWeights(len(points)), expect: make([]float64, len(points))}
}

// run scans B2 from 0 to the median loss of the last third (noise may put single points below the true offset) and
// then closer around the best.
func (s *offsetScan) run() candidate {
	tail := make([]float64, 0, len(s.points)/3+1)
	for _, p := range s.points[len(s.points)-max(len(s.points)/3, 1):] {
		tail = append(tail, p.Loss)
	}
	low, high, steps := 0.0, median(tail), offsetCandidates
	// Whatever the points, there must be some curve: the flat one through their weighted mean.
	best := s.flat()
	for range 1 + offsetRounds {
		width := (high - low) / float64(steps)
		for i := range steps + 1 {
			c := s.try(low + width*float64(i))
			s.tried = append(s.tried, c)
			if c.squares < best.squares {
				best = c
			}
		}
		low, high, steps = math.Max(best.B2-width, 0), math.Min(best.B2+width, high), offsetRefined
	}
	return best
}

// flat is the constant curve.
func (s *offsetScan) flat() candidate {
	mean, squares := 0.0, 0.0
	for i, p := range s.points {
		mean += s.weights[i] * p.Loss
	}
	for i, p := range s.points {
		squares += s.weights[i] * (p.Loss - mean) * (p.Loss - mean)
	}
	return candidate{Hyperbola: train.Hyperbola{B1: 1 / mean}, squares: squares}
}

// try fits B0 and B1 for one B2. With y = loss-B2 the curve is y*(B0*k+B1) = 1, which is linear. A residual of that
// equation times the expected y is a residual of the loss, so each pass weighs by the y that the pass before expects.
func (s *offsetScan) try(offset float64) candidate {
	h := train.Hyperbola{B2: offset}
	for i, p := range s.points {
		s.expect[i] = math.Max(p.Loss-offset, 1e-3)
	}
	for range reweightings {
		// These are the sums of equations.add, written out because this is the inner loop of a refit.
		kk, k1, one, k0, o0, all := 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
		for i, p := range s.points {
			y := p.Loss - offset
			w := s.weights[i] * s.expect[i] * s.expect[i]
			one, o0, all = one+w*y*y, o0+w*y, all+w
			kk, k1, k0 = kk+w*y*y*p.Epoch*p.Epoch, k1+w*y*y*p.Epoch, k0+w*y*p.Epoch
		}
		eq := equations{g: [][]float64{{kk, k1}, {k1, one}}, h: []float64{k0, o0}, bb: all}
		b := eq.solve()
		h.B0, h.B1 = b[0], b[1]
		for i, p := range s.points {
			s.expect[i] = math.Min(h.At(p.Epoch)-offset, 10)
		}
	}
	squares := 0.0
	for i, p := range s.points {
		residual := p.Loss - h.At(p.Epoch)
		squares += s.weights[i] * residual * residual
	}
	return candidate{Hyperbola: h, squares: squares}
}

// likely returns curves in ascending order of B2: the tried curve with the smallest B2 whose fit is not significantly
// worse than the best, the curves at the deciles of the posterior of B2 (Student's likelihood, uniform prior), and the
// curve with the largest B2.
func (s *offsetScan) likely(best candidate) []train.Hyperbola {
	sum := 0.0
	for _, w := range s.weights {
		sum += w * w
	}
	// This many points of equal weight carry the same information.
	effective := 1 / sum
	freedom := math.Max(effective-3, 1)
	variance := math.Max(best.squares*effective/freedom, noiseFloor*noiseFloor)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(likelyQuantile)
	limit := best.squares + variance*t*t/effective
	sort.SliceStable(s.tried, func(i, j int) bool { return s.tried[i].B2 < s.tried[j].B2 })
	var needsAtMost []candidate
	var mass []float64
	for i, c := range s.tried {
		if c.squares > limit {
			continue
		}
		// The scan is denser around the best curve, so each candidate stands for the interval between its neighbours.
		stretch := s.tried[min(i+1, len(s.tried)-1)].B2 - s.tried[max(i-1, 0)].B2
		excess := (c.squares - best.squares) * effective / (variance * freedom)
		needsAtMost, mass = append(needsAtMost, c), append(mass, stretch*math.Pow(1+math.Max(excess, 0), -(freedom+1)/2))
	}
	if len(needsAtMost) == 0 {
		return nil
	}
	curves := []train.Hyperbola{needsAtMost[0].Hyperbola}
	total, below, next := floats.Sum(mass), 0.0, 1.0
	for i, c := range needsAtMost {
		for below += mass[i]; next < deciles && below >= next/deciles*total; next++ {
			curves = append(curves, c.Hyperbola)
		}
	}
	return append(curves, needsAtMost[len(needsAtMost)-1].Hyperbola)
}

// median sorts values and returns the middle one; of two, the lower.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
