package nn_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/nn"
)

func batch(shape nn.Shape, samples int, seed uint64) (inputs []float64, labels []int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	inputs = make([]float64, samples*shape.Features)
	for i := range inputs {
		inputs[i] = rng.NormFloat64()
	}
	labels = make([]int, samples)
	for i := range labels {
		labels[i] = rng.IntN(shape.Classes)
	}
	return inputs, labels
}

// gradientOf overwrites gradient with the sum over the samples of the derivative of their loss by the parameters.
func gradientOf(w *nn.Workspace, gradient, parameters, inputs []float64, labels []int) nn.Totals {
	clear(gradient)
	return w.AddGradient(gradient, parameters, inputs, labels)
}

// Sizes on both sides of the kernels' blocks of four.
func shapes() map[string]nn.Shape {
	return map[string]nn.Shape{
		"smallest":       {Features: 1, Hidden: 1, Classes: 2},
		"below a block":  {Features: 3, Hidden: 2, Classes: 3},
		"whole blocks":   {Features: 8, Hidden: 4, Classes: 4},
		"blocks and odd": {Features: 5, Hidden: 9, Classes: 7},
	}
}

func TestGradientMatchesFiniteDifferences(t *testing.T) {
	for name, shape := range shapes() {
		t.Run(name, func(t *testing.T) {
			const samples, step = 6, 1e-5
			inputs, labels := batch(shape, samples, 7)
			parameters := nn.Initial(shape, 3)
			work := nn.NewWorkspace(shape, samples)
			gradient := make([]float64, len(parameters))
			gradientOf(work, gradient, parameters, inputs, labels)
			for i, original := range parameters {
				parameters[i] = original + step
				above := work.Evaluate(parameters, inputs, labels).Loss
				parameters[i] = original - step
				below := work.Evaluate(parameters, inputs, labels).Loss
				parameters[i] = original
				want := (above - below) / (2 * step)
				if math.Abs(gradient[i]-want) > 1e-7*max(1, math.Abs(want)) {
					t.Fatalf("parameter %d: gradient %.10g, finite difference %.10g", i, gradient[i], want)
				}
			}
		})
	}
}

// The shortcut for per-sample norms must agree with computing each sample alone.
func TestSquaredNormsAreThoseOfSingleSamples(t *testing.T) {
	for name, shape := range shapes() {
		t.Run(name, func(t *testing.T) {
			const samples = 5
			inputs, labels := batch(shape, samples, 11)
			parameters := nn.Initial(shape, 5)
			work := nn.NewWorkspace(shape, samples)
			whole := make([]float64, len(parameters))
			got := gradientOf(work, whole, parameters, inputs, labels)
			single, summed := make([]float64, len(parameters)), make([]float64, len(parameters))
			want := 0.0
			for n := range samples {
				gradientOf(work, single, parameters, inputs[n*shape.Features:][:shape.Features], labels[n:n+1])
				for i, g := range single {
					want += g * g
					summed[i] += g
				}
			}
			if math.Abs(got.SquaredNorms-want) > 1e-9*want {
				t.Errorf("squared norms %.12g, one by one %.12g", got.SquaredNorms, want)
			}
			for i := range whole {
				if math.Abs(whole[i]-summed[i]) > 1e-9 {
					t.Fatalf("gradient %d of the batch %g, of the samples %g", i, whole[i], summed[i])
				}
			}
		})
	}
}

func TestGradientForgetsTheLastBatch(t *testing.T) {
	shape := nn.Shape{Features: 4, Hidden: 6, Classes: 3}
	parameters := nn.Initial(shape, 1)
	inputs, labels := batch(shape, 8, 2)
	fresh := make([]float64, len(parameters))
	gradientOf(nn.NewWorkspace(shape, 8), fresh, parameters, inputs[:3*shape.Features], labels[:3])
	used := make([]float64, len(parameters))
	work := nn.NewWorkspace(shape, 8)
	gradientOf(work, used, parameters, inputs, labels)
	gradientOf(work, used, parameters, inputs[:3*shape.Features], labels[:3])
	if !slices.Equal(fresh, used) {
		t.Error("a smaller batch after a larger one gives another gradient than on a fresh workspace")
	}
}

func TestUpdateFollowsItsRule(t *testing.T) {
	parameters, velocity := []float64{1, -2}, []float64{0.5, 0}
	nn.Update(parameters, velocity, []float64{4, 8}, 0.25, nn.Rule{Rate: 0.1, Momentum: 0.9, Decay: 0.01})
	for i, want := range []float64{0.45 + 1 + 0.01, 2 - 0.02} {
		if math.Abs(velocity[i]-want) > 1e-15 {
			t.Errorf("velocity %d = %g, want %g", i, velocity[i], want)
		}
	}
	for i, want := range []float64{1 - 0.146, -2 - 0.198} {
		if math.Abs(parameters[i]-want) > 1e-15 {
			t.Errorf("parameter %d = %g, want %g", i, parameters[i], want)
		}
	}
}

func TestEnormousScoresStayFinite(t *testing.T) {
	shape := nn.Shape{Features: 2, Hidden: 2, Classes: 2}
	parameters := nn.Initial(shape, 1)
	for i := range parameters {
		parameters[i] = 1e6 * float64(1+i%3)
	}
	gradient := make([]float64, len(parameters))
	totals := gradientOf(nn.NewWorkspace(shape, 2), gradient, parameters, []float64{1, 1, -1, -1}, []int{0, 1})
	if math.IsNaN(totals.Loss) || math.IsInf(totals.Loss, 0) {
		t.Errorf("loss %g", totals.Loss)
	}
}

func TestValidateRefusesEmptyLayers(t *testing.T) {
	for _, shape := range []nn.Shape{{0, 1, 2}, {1, 0, 2}, {1, 1, 1}, {-1, 4, 4}} {
		if shape.Validate() == nil {
			t.Errorf("shape %+v passes", shape)
		}
	}
	if err := (nn.Shape{Features: 1, Hidden: 1, Classes: 2}).Validate(); err != nil {
		t.Error(err)
	}
}
