// Package profile recognises workloads by what nodes measure of them. Signatures are scaled robustly and clustered; of each cluster and batch size it is known
// which settings were cheapest (Rocha et al., "PipeTune", Middleware'20, section 5.4, without its faults: docs/tuning.md).
//
// It decides which workloads look alike. What follows from it is for package pipeline to decide.
package profile

import (
	"maps"
	"math"
	"slices"
)

// Signature is what was measured of a workload in an epoch: rates by name, for example events per second, shares of cores or bytes. What a node cannot
// measure is absent.
type Signature map[string]float64

// Feature is how one rate is scaled: rates differ by factors, so it is the logarithm that counts.
type Feature struct {
	Name string `json:"name"`
	// Median and Scale are of log(1+rate); Scale is 1.4826 times the median absolute deviation, the standard deviation where deviations are normal.
	Median float64 `json:"median"`
	Scale  float64 `json:"scale"`
}

const (
	// madToDeviation makes a standard deviation of a median absolute deviation, meanToDeviation of a mean absolute deviation.
	madToDeviation, meanToDeviation = 1.4826, 1.2533
	// leastScale keeps what hardly varies from counting more than a difference of 5 %.
	leastScale = 0.05
	// farthest is where a scaled rate ends: a broken counter says no more than that it is far off.
	farthest = 4
)

// newFeatures learns the scales of all rates, in order of their names.
func newFeatures(all []Signature) []Feature {
	values := map[string][]float64{}
	for _, s := range all {
		for name, rate := range s {
			if v, ok := logarithm(rate); ok {
				values[name] = append(values[name], v)
			}
		}
	}
	features := make([]Feature, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		features = append(features, newFeature(name, values[name]))
	}
	return features
}

func newFeature(name string, values []float64) Feature {
	m := median(values)
	off, sum := make([]float64, len(values)), 0.0
	for i, v := range values {
		off[i] = math.Abs(v - m)
		sum += off[i]
	}
	scale := madToDeviation * median(off)
	if scale < leastScale {
		// More than half of the values are the same; the others still tell workloads apart.
		scale = meanToDeviation * sum / float64(len(off))
	}
	return Feature{name, m, max(scale, leastScale)}
}

// scaled places a signature among the features; what is absent is NaN.
func scaled(features []Feature, s Signature) []float64 {
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

// logarithm is false for what is no rate.
func logarithm(rate float64) (float64, bool) {
	if !(rate >= 0) || math.IsInf(rate, 1) {
		return 0, false
	}
	return math.Log1p(rate), true
}

// distance is the root of the mean squared difference over the features that both have, infinite where these are less than half of what either has.
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

// median is that of values in any order, 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
