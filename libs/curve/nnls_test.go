package curve

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

// nnls returns the x >= 0 that minimises |A*x - b|.
func nnls(a [][]float64, b []float64) []float64 {
	eq := newEquations(len(a[0]))
	for i, row := range a {
		eq.add(row, b[i], 1)
	}
	return eq.solve()
}

func TestNNLSKnownSolutions(t *testing.T) {
	cases := []struct {
		name string
		a    [][]float64
		b    []float64
		want []float64
	}{
		{"inner solution", [][]float64{{1, 0}, {0, 2}, {1, 1}}, []float64{1, 4, 3}, []float64{1, 2}},
		{"one at the border", [][]float64{{1, 1}, {1, -1}}, []float64{1, 3}, []float64{2, 0}},
		{"all at the border", [][]float64{{1, 0}, {0, 1}}, []float64{-1, -2}, []float64{0, 0}},
		{"empty column", [][]float64{{0, 1}, {0, 2}}, []float64{3, 6}, []float64{0, 3}},
		{"columns of very different size", [][]float64{{1e9, 1e-9}, {2e9, -1e-9}}, []float64{3, 3}, []float64{2e-9, 1e9}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := nnls(tc.a, tc.b)
			for i := range got {
				if math.Abs(got[i]-tc.want[i]) > 1e-9*(1+tc.want[i]) {
					t.Errorf("x = %v, want %v", got, tc.want)
				}
			}
		})
	}
}

// TestNNLSIsOptimal checks the Karush-Kuhn-Tucker conditions, and compares the value with the best over all active
// sets.
func TestNNLSIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "columns")
		m := rapid.IntRange(n, 14).Draw(t, "rows")
		// Eighths: columns are then either dependent or well apart, not within the tolerance of each other.
		entry := rapid.Map(rapid.IntRange(-8, 8), func(i int) float64 { return float64(i) / 8 })
		a, b := make([][]float64, m), make([]float64, m)
		for i := range a {
			b[i] = entry.Draw(t, "b")
			for range n {
				a[i] = append(a[i], entry.Draw(t, "a"))
			}
		}
		if rapid.Bool().Draw(t, "dependent") && n > 1 {
			for i := range a {
				a[i][n-1] = 2 * a[i][0]
			}
		}
		x := nnls(a, b)
		residual := make([]float64, m)
		for i, row := range a {
			residual[i] = b[i]
			for j := range row {
				residual[i] -= row[j] * x[j]
			}
		}
		for j := range x {
			descent, size := 0.0, 0.0
			for i := range a {
				descent += a[i][j] * residual[i]
				size += a[i][j] * a[i][j]
			}
			if size == 0 {
				continue
			}
			descent /= math.Sqrt(size)
			if x[j] < 0 {
				t.Fatalf("x[%d] = %v", j, x[j])
			}
			if descent > 1e-5 || x[j] > 0 && descent < -1e-5 {
				t.Fatalf("x[%d] = %v with descent %v left", j, x[j], descent)
			}
		}
		if got, want := squares(residual), bruteForce(a, b); got > want+1e-6 {
			t.Fatalf("squares %v, best active set has %v", got, want)
		}
	})
}

func squares(r []float64) float64 {
	sum := 0.0
	for _, x := range r {
		sum += x * x
	}
	return sum
}

// bruteForce is the least sum of squares over all sets of columns whose unconstrained solution is not negative.
func bruteForce(a [][]float64, b []float64) float64 {
	n := len(a[0])
	least := squares(b)
	for set := 1; set < 1<<n; set++ {
		var columns []int
		for j := range n {
			if set&(1<<j) != 0 {
				columns = append(columns, j)
			}
		}
		dense := mat.NewDense(len(a), len(columns), nil)
		for i := range a {
			for c, j := range columns {
				dense.Set(i, c, a[i][j])
			}
		}
		var x mat.VecDense
		if err := x.SolveVec(dense, mat.NewVecDense(len(b), b)); err != nil {
			continue
		}
		var r mat.VecDense
		r.MulVec(dense, &x)
		r.SubVec(mat.NewVecDense(len(b), b), &r)
		if mat.Min(&x) >= 0 {
			least = math.Min(least, squares(r.RawVector().Data))
		}
	}
	return least
}
