// Package profile recognises workloads by measurements of the nodes. It scales signatures robustly and clusters them;
// for each cluster and batch size it knows the cheapest settings (Rocha et al., "PipeTune", Middleware'20, section 5.4,
// without its faults: docs/tuning.md).
//
// It decides which workloads are similar. Package pipeline decides what follows from it.
package profile

import (
	"maps"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

const (
	// madToDeviation converts a median absolute deviation into a standard deviation, meanToDeviation a mean absolute
	// deviation.
	madToDeviation, meanToDeviation = 1.4826, 1.2533
	// leastScale keeps nearly constant rates from counting more than a difference of 5 %.
	leastScale = 0.05
	// farthest bounds a scaled rate: a broken counter shows only that it is far off.
	farthest = 4
)

// newFeatures learns the scales of all rates, in the order of their names.
func newFeatures(all []contract.Signature) []contract.Feature {
	values := map[string][]float64{}
	for _, s := range all {
		for name, rate := range s {
			if v, ok := logarithm(rate); ok {
				values[name] = append(values[name], v)
			}
		}
	}
	features := make([]contract.Feature, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		features = append(features, newFeature(name, values[name]))
	}
	return features
}

func newFeature(name string, values []float64) contract.Feature {
	m := median(values)
	off, sum := make([]float64, len(values)), 0.0
	for i, v := range values {
		off[i] = math.Abs(v - m)
		sum += off[i]
	}
	scale := madToDeviation * median(off)
	if scale < leastScale {
		// More than half of the values are equal; the others still distinguish workloads.
		scale = meanToDeviation * sum / float64(len(off))
	}
	return contract.Feature{Name: name, Median: m, Scale: max(scale, leastScale)}
}

// scaled returns the coordinates of a signature; an absent feature is NaN.
func scaled(features []contract.Feature, s contract.Signature) []float64 {
	x := make([]float64, len(features))
	for i, f := range features {
		x[i] = math.NaN()
		if rate, ok := s[f.Name]; ok {
			if v, ok := logarithm(rate); ok {
				x[i] = max(-farthest, min((v-f.Median)/f.Scale, farthest))
			}
		}
	}
	return x
}

// logarithm returns false for an invalid rate.
func logarithm(rate float64) (float64, bool) {
	if !(rate >= 0) || math.IsInf(rate, 1) {
		return 0, false
	}
	return math.Log1p(rate), true
}

// distance is the root mean squared difference over the features that both have, infinite if these are less than half
// of the features of either.
func distance(x, y []float64) float64 {
	sum, both, either := 0.0, 0, 0
	for i := range x {
		noX, noY := math.IsNaN(x[i]), math.IsNaN(y[i])
		if !noX || !noY {
			either++
		}
		if !noX && !noY {
			both++
			sum += (x[i] - y[i]) * (x[i] - y[i])
		}
	}
	if both == 0 || 2*both < either {
		return math.Inf(1)
	}
	return math.Sqrt(sum / float64(both))
}

// median returns the median of values in any order, 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
