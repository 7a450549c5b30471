package curve

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

// The factor that grows gives what solving all equations at once gives, values that were replaced included.
func TestProcessSolvesTheNormalEquations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const mean, noise = 0.5, 0.1
		kernel := func(x, y float64) float64 { return 0.3 + math.Exp(-math.Abs(x-y)) }
		n := rapid.IntRange(1, 8).Draw(t, "n")
		xs, ys := make([]float64, n), mat.NewVecDense(n, nil)
		p := NewProcess(mean, kernel)
		at := rapid.Float64Range(-3, 3).Draw(t, "at")
		for i := range n {
			xs[i] = rapid.Float64Range(-3, 3).Draw(t, "x")
			ys.SetVec(i, rapid.Float64Range(-1, 1).Draw(t, "y"))
			p.Add(xs[i], 7, noise)
			p.Predict(at)
		}
		for i := range n {
			p.Replace(i, mean+ys.AtVec(i))
		}
		k, cross := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
		for i := range n {
			cross.SetVec(i, kernel(xs[i], at))
			for j := range n {
				k.SetSym(i, j, kernel(xs[i], xs[j]))
			}
			k.SetSym(i, i, k.At(i, i)+noise*noise)
		}
		var whole mat.Cholesky
		if !whole.Factorize(k) {
			t.Fatal("the covariance is not positive definite")
		}
		var weights, rest mat.VecDense
		if err := whole.SolveVecTo(&weights, ys); err != nil {
			t.Fatal(err)
		}
		if err := whole.SolveVecTo(&rest, cross); err != nil {
			t.Fatal(err)
		}
		value, deviation := p.Predict(at)
		if want := mean + mat.Dot(cross, &weights); math.Abs(value-want) > 1e-6 {
			t.Fatalf("value %g, want %g", value, want)
		}
		if want := kernel(at, at) - mat.Dot(cross, &rest); math.Abs(deviation*deviation-want) > 1e-6 {
			t.Fatalf("variance %g, want %g", deviation*deviation, want)
		}
	})
}
