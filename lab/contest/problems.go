package contest

import (
	"math"
	"math/rand/v2"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Functions are the problems that need no data: two standard functions without epochs and two with learning curves.
func Functions() []Problem {
	return []Problem{branin(), hartmann6(), curves("curves", 0), curves("crossing", 0.35)}
}

// at reads a number of a point.
func at(p search.Params, name string) float64 {
	x, _ := p[name].Float()
	return x
}

// function is a problem without epochs.
func function(name string, space search.Space, f func(p search.Params) float64) Problem {
	return Problem{
		Name: name, Space: space, MaxEpochs: 1, MinEpochs: 1, Reduction: 3, Quality: f,
		Score: func(p search.Params, _ int, _ *rand.Rand) float64 { return f(p) },
	}
}

// branin has three equal minima of 0.397887 (Dixon and Szegö, 1978).
func branin() Problem {
	space := search.Space{{Name: "x", Kind: search.Uniform, Low: -5, High: 10}, {Name: "y", Kind: search.Uniform, Low: 0, High: 15}}
	return function("branin", space, func(p search.Params) float64 {
		x, y := at(p, "x"), at(p, "y")
		bent := y - 5.1/(4*math.Pi*math.Pi)*x*x + 5/math.Pi*x - 6
		return -(bent*bent + 10*(1-1/(8*math.Pi))*math.Cos(x) + 10)
	})
}

// hartmann6 has one minimum of -3.32237 among six (Dixon and Szegö, 1978).
func hartmann6() Problem {
	names := []string{"a", "b", "c", "d", "e", "f"}
	var space search.Space
	for _, n := range names {
		space = append(space, contract.Parameter{Name: n, Kind: search.Uniform, Low: 0, High: 1})
	}
	heights := []float64{1, 1.2, 3, 3.2}
	widths := [][]float64{{10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, 0.05, 10, 0.1, 14}}
	centres := [][]float64{
		{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
		{0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
		{0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
		{0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381},
	}
	return function("hartmann6", space, func(p search.Params) float64 {
		sum := 0.0
		for i, height := range heights {
			away := 0.0
			for d, n := range names {
				apart := at(p, n) - centres[i][d]
				away += widths[i][d] * apart * apart
			}
			sum += height * math.Exp(-away)
		}
		return sum
	})
}

// curves are losses that fall from 2.3 as exponentials over 27 epochs. Where a training ends depends on the learning
// rate, whose best value grows with the batch, on the width and on the momentum. Rates below the best learn more
// slowly, so that curves cross; haste is by how much rates above it learn faster, in powers of ten for each: then the
// first epochs mislead. Every epoch has a noise of 0.01.
func curves(name string, haste float64) Problem {
	space := search.Space{
		{Name: "learning_rate", Kind: search.LogUniform, Low: 1e-5, High: 1},
		{Name: "batch_size", Kind: search.Choice, Values: numbers(32, 64, 128, 256, 512, 1024)},
		{Name: "optimizer", Kind: search.Choice, Values: []contract.Value{contract.Text("sgd"), contract.Text("adam")}},
		{Name: "momentum", Kind: search.Uniform, Low: 0, High: 0.99, When: &contract.Condition{Parameter: "optimizer", In: []contract.Value{contract.Text("sgd")}}},
		{Name: "width", Kind: search.LogInt, Low: 16, High: 1024},
	}
	loss := func(p search.Params, epochs float64) float64 {
		rate, batch, width := math.Log10(at(p, "learning_rate")), math.Log2(at(p, "batch_size")/32), math.Log2(at(p, "width"))
		best, end := -2+0.12*batch, 0.30
		if p["optimizer"] == contract.Text("adam") {
			best, end = -3+0.12*batch, 0.33
		} else {
			off := at(p, "momentum") - 0.9
			end += 0.2 * off * off
		}
		end += 0.15*(rate-best)*(rate-best) + 0.01*(width-8)*(width-8) + 0.01*batch
		speed := 0.25 * math.Pow(10, 0.35*min(rate-best, 0)+haste*max(rate-best, 0))
		return end + max(2.3-end, 0)*math.Exp(-speed*epochs)
	}
	const noise, epochs = 0.01, 27
	return Problem{
		Name: name, Space: space, MaxEpochs: epochs, MinEpochs: 1, Reduction: 3,
		Score: func(p search.Params, epoch int, r *rand.Rand) float64 {
			return noise*r.NormFloat64() - loss(p, float64(epoch))
		},
		Quality: func(p search.Params) float64 { return -loss(p, epochs) },
	}
}

func numbers(list ...float64) []contract.Value {
	values := make([]contract.Value, len(list))
	for i, x := range list {
		values[i] = contract.Number(x)
	}
	return values
}
