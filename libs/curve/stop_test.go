package curve_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// losses follow a hyperbola with noise, from epoch 1 on.
func losses(h train.Hyperbola, epochs int, noise float64, seed uint64) []curve.Point {
	dice := rand.New(rand.NewPCG(seed, 1))
	points := make([]curve.Point, epochs)
	for i := range points {
		k := float64(i + 1)
		points[i] = curve.Point{Epoch: k, Loss: h.At(k) * (1 + noise*dice.NormFloat64())}
	}
	return points
}

// endOf returns the epoch after which a job would end.
func endOf(points []curve.Point, rule train.StopRule) int {
	for n := range points {
		if s, ok := curve.Converged(points[:n+1], rule); ok {
			return s.Epochs
		}
	}
	return 0
}

func TestConvergedEndsWhereTheTrueCurveIsCalm(t *testing.T) {
	truth := train.Hyperbola{B0: 0.3, B1: 0.5, B2: 0.2}
	rule := train.StopRule{MaxEpochs: 200, MinDecrease: 0.01, Patience: 3}
	want := 0
	for k, calm := 2, 0; calm < rule.Patience; k++ {
		calm++
		if truth.At(float64(k-1))-truth.At(float64(k)) >= rule.MinDecrease {
			calm = 0
		}
		want = k
	}
	for _, noise := range []float64{0, 0.002} {
		for seed := range uint64(5) {
			if got := endOf(losses(truth, 200, noise, seed), rule); math.Abs(float64(got-want)) > 2 {
				t.Errorf("noise %g, seed %d: ended after %d epochs, the true curve is calm after %d", noise, seed, got, want)
			}
		}
	}
}

func TestConvergedIsNotFooled(t *testing.T) {
	falling := train.Hyperbola{B0: 0.3, B1: 0.5, B2: 0.2}
	rule := train.StopRule{MaxEpochs: 200, MinDecrease: 0.001, Patience: 3}
	points := losses(falling, 12, 0, 1)
	outlier := append([]curve.Point(nil), points...)
	outlier[9].Loss = 30
	missing := append(append([]curve.Point(nil), points[:3]...), curve.Point{Epoch: 40, Loss: points[2].Loss})
	for name, of := range map[string][]curve.Point{"still falling": points, "an outlier": outlier, "epochs missing": missing, "two points": points[:2], "none": nil} {
		if s, ok := curve.Converged(of, rule); ok {
			t.Errorf("%s: converged after %d", name, s.Epochs)
		}
	}
	if _, ok := curve.Converged(losses(train.Hyperbola{B1: 1}, 20, 0, 1), train.StopRule{MaxEpochs: 200}); ok {
		t.Error("converged without a threshold")
	}
	// One large jump at the end does not mean convergence, whatever the fit says.
	jump := losses(train.Hyperbola{B1: 1}, 20, 0, 1)
	jump[18].Loss, jump[19].Loss = 0.5, 0.5
	if _, ok := curve.Converged(jump, train.StopRule{MaxEpochs: 200, MinDecrease: 0.01, Patience: 3}); ok {
		t.Error("converged while the loss fell by half")
	}
}
