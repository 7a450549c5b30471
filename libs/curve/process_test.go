package curve

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distmv"
	"pgregory.net/rapid"
)

// The growing factor gives the same result as solving all equations at once, also after values were replaced.
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
		centred := make([]float64, n)
		copy(centred, ys.RawVector().Data)
		normal, ok := distmv.NewNormal(make([]float64, n), k, nil)
		if !ok {
			t.Fatal("the covariance is not positive definite")
		}
		if got, want := p.LogLikelihood(), normal.LogProb(centred); math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
			t.Fatalf("log likelihood %g, want %g", got, want)
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

// The expected improvement is the mean excess over the best, here summed numerically.
func TestExpectedImprovement(t *testing.T) {
	for _, tc := range []struct{ ahead, deviation float64 }{{0, 1}, {-1, 0.5}, {2, 0.1}, {0.3, 3}, {1, 0}, {-1, 0}} {
		want, steps := max(tc.ahead, 0), 20_000
		if tc.deviation > 0 {
			want = 0
			for i := range steps {
				z := -8 + 16*(float64(i)+0.5)/float64(steps)
				want += max(tc.ahead+tc.deviation*z, 0) * math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) * 16 / float64(steps)
			}
		}
		if got := ExpectedImprovement(tc.ahead, tc.deviation); math.Abs(got-want) > 1e-6 {
			t.Errorf("%+v: %g, want %g", tc, got, want)
		}
	}
}
