// Package dataset generates a classification set of any size from a seed, sample by sample, so that nothing need be
// stored or shared, and determines which worker trains on which samples. Every class is a few Gaussian clusters in a
// small hidden space; a random nonlinear map carries a point to its features; a share of the labels is wrong on
// purpose, so that the loss levels off above zero.
package dataset

import (
	"math"
	"math/rand/v2"
)

const (
	latentDimensions  = 12
	clustersPerClass  = 4
	clusterSpread     = 0.75
	featureNoise      = 0.10
	labelNoise        = 0.06
	heldOutFirstIndex = 1 << 62
)

// Set describes a generated set: the place of each cluster and the map from the
// hidden space to features. It is read-only after New.
type Set struct {
	features, classes int
	seed              uint64
	centres           []float64 // clusters x latent dimensions; cluster k belongs to class k mod classes
	mixing            []float64 // features x latent dimensions
	shift             []float64 // features
}

// New draws the clusters and the map of the set with this seed.
func New(seed uint64, features, classes int) *Set {
	rng := rand.New(rand.NewPCG(seed, 0xda7a))
	s := &Set{
		features: features, classes: classes, seed: seed,
		centres: make([]float64, classes*clustersPerClass*latentDimensions),
		mixing:  make([]float64, features*latentDimensions),
		shift:   make([]float64, features),
	}
	for i := range s.centres {
		s.centres[i] = rng.NormFloat64()
	}
	for i := range s.mixing {
		s.mixing[i] = rng.NormFloat64() / math.Sqrt(latentDimensions) * 1.5
	}
	for i := range s.shift {
		s.shift[i] = rng.NormFloat64()
	}
	return s
}

// Sampler draws samples of a set. It keeps scratch space, so each worker has its own.
type Sampler struct {
	set    *Set
	source *rand.PCG
	rng    *rand.Rand
	point  []float64
}

// Sampler makes a sampler of the set.
func (s *Set) Sampler() *Sampler {
	source := rand.NewPCG(0, 0)
	return &Sampler{set: s, source: source, rng: rand.New(source), point: make([]float64, latentDimensions)}
}

// Training writes the features of training sample index and returns its label. The
// sample depends on the set and the index alone.
func (s *Sampler) Training(index int, features []float64) (label int) {
	return s.draw(uint64(index), features)
}

// HeldOut is Training for the samples that are held out to measure accuracy.
func (s *Sampler) HeldOut(index int, features []float64) (label int) {
	return s.draw(heldOutFirstIndex+uint64(index), features)
}

func (s *Sampler) draw(index uint64, features []float64) int {
	s.source.Seed(s.set.seed, scramble(index))
	cluster := s.rng.IntN(s.set.classes * clustersPerClass)
	label := cluster % s.set.classes
	if s.rng.Float64() < labelNoise {
		label = s.rng.IntN(s.set.classes)
	}
	for d, centre := range s.set.centres[cluster*latentDimensions:][:latentDimensions] {
		s.point[d] = centre + clusterSpread*s.rng.NormFloat64()
	}
	for f := range features[:s.set.features] {
		sum := s.set.shift[f]
		for d, m := range s.set.mixing[f*latentDimensions:][:latentDimensions] {
			sum += m * s.point[d]
		}
		features[f] = math.Tanh(sum) + featureNoise*s.rng.NormFloat64()
	}
	return label
}

// scramble spreads neighbouring indices over all seeds (the finaliser of SplitMix64),
// because neighbouring seeds begin with related numbers.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}
