package curve

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// trace draws n epochs of a known curve with relative noise.
func trace(h train.Hyperbola, scale float64, n int, noise float64, seed uint64) []Point {
	r := rand.New(rand.NewPCG(seed, 1))
	points := make([]Point, n)
	for i := range points {
		k := float64(i + 1)
		points[i] = Point{Epoch: k, Loss: scale * h.At(k) * (1 + noise*r.NormFloat64())}
	}
	return points
}

func drawCurve(t *rapid.T) train.Hyperbola {
	return train.Hyperbola{
		B0: rapid.Float64Range(0.05, 1.5).Draw(t, "b0"), B1: rapid.Float64Range(0.3, 2).Draw(t, "b1"), B2: rapid.Float64Range(0, 0.6).Draw(t, "b2"),
	}
}

func TestFitConvergenceRecoversExactCurves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, scale, n := drawCurve(t), rapid.Float64Range(0.01, 1e4).Draw(t, "scale"), rapid.IntRange(8, 60).Draw(t, "epochs")
		fit, err := FitConvergence(trace(h, scale, n, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		first := scale * h.At(1)
		for _, k := range []float64{1, float64(n) / 2, float64(n), float64(2 * n)} {
			if got, want := fit.Loss(k), scale*h.At(k); math.Abs(got-want) > 0.02*first {
				t.Fatalf("loss at %v: %v, want %v (fit %+v)", k, got, want, fit)
			}
		}
	})
}

// TestFitConvergencePredictsStopFromNoisyPoints predicts, with 1 % noise, the stop epoch after half of the training.
func TestFitConvergencePredictsStopFromNoisyPoints(t *testing.T) {
	inside, total, worst := 0, 0, 0.0
	var errs []float64
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := train.Hyperbola{B0: 0.1 + r.Float64(), B1: 0.5 + r.Float64(), B2: 0.3 * r.Float64()}
		truth := train.Convergence{Hyperbola: h, Scale: 1}.EpochsUntil(0.002, 5, 300).Expected
		fit, err := FitConvergence(trace(h, 1, max(int(truth/2), 6), 0.01, seed))
		if err != nil {
			t.Fatal(err)
		}
		got := fit.EpochsUntil(0.002, 5, 300)
		if got.Low <= truth && truth <= got.High {
			inside++
		}
		total++
		e := math.Abs(got.Expected-truth) / truth
		errs, worst = append(errs, e), math.Max(worst, e)
	}
	middle := median(errs)
	t.Logf("stop epoch: median error %.1f %%, worst %.0f %%, %d of %d inside the interval", 100*middle, 100*worst, inside, total)
	if middle > 0.15 {
		t.Errorf("median error %.2f, want at most 0.15", middle)
	}
	if inside < total*3/4 {
		t.Errorf("%d of %d true values inside the interval, want three quarters", inside, total)
	}
}

func TestFitConvergenceReplacesOutliers(t *testing.T) {
	h := train.Hyperbola{B0: 0.3, B1: 1, B2: 0.1}
	clean := trace(h, 1, 30, 0.003, 7)
	for i, factor := range map[int]float64{4: 20, 11: 0.01, 24: 8} {
		clean[i].Loss *= factor
	}
	fit, err := FitConvergence(clean)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []float64{2, 15, 30, 60} {
		if got, want := fit.Loss(k), h.At(k); math.Abs(got-want) > 0.03 {
			t.Errorf("loss at %v: %v, want %v", k, got, want)
		}
	}
}

func TestFitConvergenceEdges(t *testing.T) {
	flat := []Point{{1, 2}, {2, 2}, {3, 2}, {4, 2}}
	cases := []struct {
		name   string
		points []Point
		few    bool
		loss9  float64
	}{
		{"nothing", nil, true, 0},
		{"two", []Point{{1, 3}, {2, 2}}, true, 0},
		{"three, one of them no number", []Point{{1, 3}, {2, math.NaN()}, {3, 2}}, true, 0},
		{"one epoch three times", []Point{{1, 3}, {1, 2}, {1, 1}}, true, 0},
		{"negative losses", []Point{{1, -3}, {2, -4}, {3, -5}}, true, 0},
		{"constant", flat, false, 2},
		{"out of order", []Point{{3, 2}, {1, 2}, {2, 2}}, false, 2},
		{"repeated epoch counts last", []Point{{1, 2}, {2, 90}, {2, 2}, {3, 2}, {4, 2}}, false, 2},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			fit, err := FitConvergence(tc.points)
			if tc.few {
				if !errors.Is(err, ErrTooFew) {
					t.Fatalf("error %v, want ErrTooFew", err)
				}
				return
			}
			if err != nil || math.Abs(fit.Loss(9)-tc.loss9) > 1e-6 {
				t.Fatalf("loss at 9: %v (%v), want %v", fit.Loss(9), err, tc.loss9)
			}
		})
	}
	rising, err := FitConvergence([]Point{{1, 1}, {2, 2}, {3, 3}, {4, 4}})
	if err != nil || rising.EpochsUntil(0.01, 3, 100).Expected != 3 {
		t.Errorf("a rising loss has no decrease: %+v (%v)", rising, err)
	}
}

// TestPredictedStopIsSteady: from epoch to epoch of a noisy training the predicted end moves little, although the
// single best curve flips.
func TestPredictedStopIsSteady(t *testing.T) {
	var middle, best float64
	for seed := range uint64(40) {
		points := trace(train.Hyperbola{B0: 0.3, B1: 0.8, B2: 0.3}, 1, 20, 0.02, seed)
		var lastMiddle, lastBest float64
		for n := 5; n <= len(points); n++ {
			fit, err := FitConvergence(points[:n])
			if err != nil {
				t.Fatal(err)
			}
			if !slices.IsSortedFunc(fit.Likely, func(a, b train.Hyperbola) int { return cmp.Compare(a.B2, b.B2) }) || len(fit.Likely) < 3 {
				t.Fatalf("likely curves %+v", fit.Likely)
			}
			alone := fit
			alone.Likely = nil
			nowMiddle, nowBest := fit.EpochsUntil(0.005, 3, 200).Expected, alone.EpochsUntil(0.005, 3, 200).Expected
			if n > 5 {
				middle, best = middle+math.Abs(nowMiddle-lastMiddle), best+math.Abs(nowBest-lastBest)
			}
			lastMiddle, lastBest = nowMiddle, nowBest
		}
	}
	t.Logf("moved by %.0f epochs, the best curve by %.0f", middle, best)
	if middle > 0.85*best {
		t.Errorf("the predicted end moved by %.0f epochs in all, that of the best curve by %.0f", middle, best)
	}
}
