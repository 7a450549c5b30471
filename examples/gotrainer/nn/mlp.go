// Package nn is a multi-layer perceptron and its gradient: two hidden layers with
// tanh, softmax and cross-entropy on top. It computes on the calling goroutine, in a
// fixed order, so equal inputs give equal bytes. It decides nothing about data,
// batches, workers or storage.
package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Shape is the size of a network: Features inputs, two hidden layers of Hidden units,
// Classes outputs.
type Shape struct {
	Features, Hidden, Classes int
}

// Validate refuses a shape that no network can have.
func (s Shape) Validate() error {
	if s.Features < 1 || s.Hidden < 1 || s.Classes < 2 {
		return fmt.Errorf("network of %d features, %d hidden units and %d classes: "+
			"at least 1, 1 and 2 are needed", s.Features, s.Hidden, s.Classes)
	}
	return nil
}

// Parameters is the number of weights and biases.
func (s Shape) Parameters() int {
	total := 0
	for _, l := range s.layers() {
		total += l.in*l.out + l.out
	}
	return total
}

// Blocks are the sizes of the weights and of the biases of each layer, in the order of the flat vector of parameters.
func (s Shape) Blocks() []int {
	var sizes []int
	for _, l := range s.layers() {
		sizes = append(sizes, l.in*l.out, l.out)
	}
	return sizes
}

// layer is one affine map: in x out weights, row by row, followed by out biases,
// beginning at offset in the flat vector of parameters.
type layer struct {
	in, out, offset int
}

func (s Shape) layers() []layer {
	sizes := []int{s.Features, s.Hidden, s.Hidden, s.Classes}
	layers := make([]layer, 0, len(sizes)-1)
	offset := 0
	for i := range len(sizes) - 1 {
		layers = append(layers, layer{in: sizes[i], out: sizes[i+1], offset: offset})
		offset += sizes[i]*sizes[i+1] + sizes[i+1]
	}
	return layers
}

func (l layer) weights(parameters []float64) []float64 {
	return parameters[l.offset:][:l.in*l.out]
}

func (l layer) biases(parameters []float64) []float64 {
	return parameters[l.offset+l.in*l.out:][:l.out]
}

// Initial draws the first parameters: Glorot and Bengio's normal initialisation
// (2010, eq. 12, by variance), biases at zero.
func Initial(s Shape, seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 0x6e6e))
	parameters := make([]float64, s.Parameters())
	for _, l := range s.layers() {
		deviation := math.Sqrt(2 / float64(l.in+l.out))
		w := l.weights(parameters)
		for i := range w {
			w[i] = deviation * rng.NormFloat64()
		}
	}
	return parameters
}

// Rule is how a step changes the parameters.
type Rule struct {
	Rate, Momentum float64
	// Decay pulls the parameters towards zero, as a penalty of Decay/2 times their
	// squared norm would.
	Decay float64
}

// Update applies one step of SGD with momentum and weight decay: velocity =
// momentum*velocity + scale*gradient + decay*parameters, parameters -= rate*velocity.
// scale turns a summed gradient into a mean one.
func Update(parameters, velocity, gradient []float64, scale float64, rule Rule) {
	gradient = gradient[:len(parameters)]
	velocity = velocity[:len(parameters)]
	for i, p := range parameters {
		v := rule.Momentum*velocity[i] + scale*gradient[i] + rule.Decay*p
		velocity[i] = v
		parameters[i] = p - rule.Rate*v
	}
}
