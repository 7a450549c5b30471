package curve

import "math"

// Tolerances relative to unit columns and to the length of the target.
const (
	pivotTolerance    = 1e-12 // squared distance of a column from those in use; below, the column depends on them
	gradientTolerance = 1e-11
)

// equations are the normal equations G*x = h of a weighted least-squares problem |A*x - b| with x >= 0, built row by
// row (Lawson and Hanson, "Solving Least Squares Problems", chapter 23). They are meant for a few columns: columns are
// scaled to unit length first, and a column that depends on those already in use gets 0.
type equations struct {
	g  [][]float64
	h  []float64
	bb float64 // squared length of the target
}

func newEquations(columns int) *equations {
	eq := &equations{g: make([][]float64, columns), h: make([]float64, columns)}
	cells := make([]float64, columns*columns)
	for i := range eq.g {
		eq.g[i] = cells[i*columns : (i+1)*columns]
	}
	return eq
}

// add enters one row, multiplied by weight.
func (eq *equations) add(row []float64, target, weight float64) {
	w := weight * weight
	for i, x := range row {
		for j := i; j < len(row); j++ {
			eq.g[i][j] += w * x * row[j]
			eq.g[j][i] = eq.g[i][j]
		}
		eq.h[i] += w * x * target
	}
	eq.bb += w * target * target
}

// solve runs the active-set loop: the column with the steepest descent joins the passive set, whose unconstrained
// solution is taken; the solution backs off to the border while it leaves the positive region.
func (eq *equations) solve() []float64 {
	n := len(eq.h)
	s := solver{scale: make([]float64, n), x: make([]float64, n), passive: make([]bool, n), barred: make([]bool, n), eq: eq}
	for i := range s.scale {
		if d := math.Sqrt(eq.g[i][i]); d > 0 {
			s.scale[i] = 1 / d
		}
	}
	enough := gradientTolerance * math.Sqrt(eq.bb)
	for range 10 * n {
		j := s.steepest(enough)
		if j < 0 {
			break
		}
		s.passive[j] = true
		if s.descend(j) {
			clear(s.barred)
		} else {
			s.passive[j], s.barred[j] = false, true
		}
	}
	for i := range s.x {
		s.x[i] *= s.scale[i]
	}
	return s.x
}

// solver is the state of one solve, in scaled columns.
type solver struct {
	eq              *equations
	scale, x        []float64
	passive, barred []bool // barred: useless until something else changes
}

// at and target are the scaled equations.
func (s *solver) at(i, j int) float64  { return s.eq.g[i][j] * s.scale[i] * s.scale[j] }
func (s *solver) target(i int) float64 { return s.eq.h[i] * s.scale[i] }

// steepest returns the unused column with the largest descent above enough, or -1.
func (s *solver) steepest(enough float64) int {
	best, most := -1, enough
	for j := range s.x {
		if s.passive[j] || s.barred[j] {
			continue
		}
		w := s.target(j)
		for i := range s.x {
			w -= s.at(j, i) * s.x[i]
		}
		if w > most {
			best, most = j, w
		}
	}
	return best
}

// descend moves x to the best point of the passive set. It returns false if the column that joined does not help.
func (s *solver) descend(joined int) bool {
	for first := true; ; first = false {
		z, ok := s.unconstrained()
		if !ok || first && z[joined] <= 0 {
			return false
		}
		step, inside := 1.0, true
		for i := range z {
			if s.passive[i] && z[i] <= 0 {
				inside = false
				step = math.Min(step, s.x[i]/(s.x[i]-z[i]))
			}
		}
		if inside {
			copy(s.x, z)
			return true
		}
		for i := range z {
			if !s.passive[i] {
				continue
			}
			blocks := z[i] <= 0 && s.x[i]/(s.x[i]-z[i]) <= step
			s.x[i] += step * (z[i] - s.x[i])
			if blocks || s.x[i] <= 0 {
				s.x[i], s.passive[i] = 0, false
			}
		}
	}
}

// unconstrained solves the equations of the passive set by Cholesky decomposition; it returns false if they are
// singular.
func (s *solver) unconstrained() ([]float64, bool) {
	var set []int
	for i, in := range s.passive {
		if in {
			set = append(set, i)
		}
	}
	k := len(set)
	l, y := make([]float64, k*k), make([]float64, k)
	for r := range set {
		y[r] = s.target(set[r])
		for c := 0; c <= r; c++ {
			sum := s.at(set[r], set[c])
			for i := range c {
				sum -= l[r*k+i] * l[c*k+i]
			}
			if r > c {
				l[r*k+c] = sum / l[c*k+c]
				y[r] -= l[r*k+c] * y[c]
				continue
			}
			if !(sum > pivotTolerance) {
				return nil, false
			}
			l[r*k+r] = math.Sqrt(sum)
			y[r] /= l[r*k+r]
		}
	}
	z := make([]float64, len(s.x))
	for r := k - 1; r >= 0; r-- {
		for i := r + 1; i < k; i++ {
			y[r] -= l[i*k+r] * y[i]
		}
		y[r] /= l[r*k+r]
		z[set[r]] = y[r]
	}
	return z, true
}
