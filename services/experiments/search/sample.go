package search

import (
	"math"
	"math/rand/v2"
)

// attempts bounds how often a repeated point is drawn again: a small space may be exhausted unnoticed.
const attempts = 200

// random draws points that were not tried.
type random struct {
	space Space
	seed  uint64
}

func (s random) propose(trials []Trial) (Params, bool) {
	tried := s.space.tried(trials)
	r := rand.New(rand.NewPCG(s.seed, uint64(len(trials))))
	for range attempts {
		if p := s.space.random(r); !tried[s.space.key(p)] {
			return p, true
		}
	}
	return s.space.untried(tried)
}

// tried returns the keys of the points of trials.
func (s Space) tried(trials []Trial) map[string]bool {
	keys := make(map[string]bool, len(trials))
	for _, t := range trials {
		keys[s.key(t.Params)] = true
	}
	return keys
}

// untried returns an untried point of a space that is nearly exhausted.
func (s Space) untried(tried map[string]bool) (Params, bool) {
	for p := range s.All(len(tried) + 2) {
		if !tried[s.key(p)] {
			return p, true
		}
	}
	return nil, false
}

// grid takes the points of a grid in order.
type grid struct {
	space  Space
	levels int
}

func (g grid) propose(trials []Trial) (Params, bool) {
	tried := g.space.tried(trials)
	for p := range g.space.All(g.levels) {
		if !tried[g.space.key(p)] {
			return p, true
		}
	}
	return nil, false
}

// spread returns point i of a sequence that fills the unit cube evenly, shifted at random by the seed (Roberts, "The
// unreasonable effectiveness of quasirandom sequences", 2018: multiples of the powers of a generalised golden ratio).
func spread(seed uint64, i, dimensions int) []float64 {
	ratio := 2.0
	for range 40 {
		ratio = math.Pow(1+ratio, 1/float64(dimensions+1))
	}
	shift := rand.New(rand.NewPCG(seed, math.MaxUint64))
	unit := make([]float64, dimensions)
	for d := range unit {
		_, unit[d] = math.Modf(shift.Float64() + float64(i+1)*math.Pow(ratio, -float64(d+1)))
	}
	return unit
}
