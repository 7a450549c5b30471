package nn

import (
	"math"
	"slices"
)

// Totals are sums over the samples of one call.
type Totals struct {
	// Loss is the summed cross-entropy in nats.
	Loss float64
	// SquaredNorms is the sum over samples of the squared norm of that sample's own gradient; Evaluate leaves it zero.
	// It gives the gradient noise scale from a single batch.
	SquaredNorms float64
	// Correct counts the samples whose most likely class is the label.
	Correct int
	// Samples is the number of samples.
	Samples int
}

// Add adds the totals of another call.
func (t *Totals) Add(other Totals) {
	t.Loss += other.Loss
	t.SquaredNorms += other.SquaredNorms
	t.Correct += other.Correct
	t.Samples += other.Samples
}

// Workspace holds the activations of one worker, so that a step allocates nothing. It is not safe for concurrent use;
// it only reads parameters, which several workspaces may share.
type Workspace struct {
	shape      Shape
	layers     []layer
	activation [][]float64 // activation[i]: input of layer i, samples x in; the last: class probabilities
	delta      [][]float64 // delta[i]: derivative of the loss by the output of layer i, samples x out
	transposed []float64
}

// NewWorkspace returns a workspace for batches of at most batch samples.
func NewWorkspace(s Shape, batch int) *Workspace {
	w := &Workspace{shape: s, layers: s.layers()}
	w.activation = append(w.activation, nil)
	widest := 0
	for _, l := range w.layers {
		w.activation = append(w.activation, make([]float64, batch*l.out))
		w.delta = append(w.delta, make([]float64, batch*l.out))
		widest = max(widest, l.in)
	}
	w.transposed = make([]float64, batch*widest)
	return w
}

// Evaluate runs the network forward on inputs (len(labels) x features) and compares with labels.
func (w *Workspace) Evaluate(parameters, inputs []float64, labels []int) Totals {
	w.forward(parameters, inputs, len(labels))
	return w.score(labels)
}

// AddGradient adds the sum over the samples of the derivative of their loss by the parameters to gradient: several
// passes over parts of a batch give the same as one pass over all of it.
func (w *Workspace) AddGradient(gradient, parameters, inputs []float64, labels []int) Totals {
	samples := len(labels)
	w.forward(parameters, inputs, samples)
	totals := w.score(labels)
	w.outputDelta(labels)
	for i, l := range slices.Backward(w.layers) {
		delta := w.delta[i][:samples*l.out]
		input := w.activation[i][:samples*l.in]
		w.accumulate(gradient, l, input, delta, samples)
		totals.SquaredNorms += squaredNorms(input, delta, l, samples)
		if i > 0 {
			w.backward(parameters, i, samples)
		}
	}
	return totals
}

// forward fills the activations; the last one with probabilities.
func (w *Workspace) forward(parameters, inputs []float64, samples int) {
	w.activation[0] = inputs
	for i, l := range w.layers {
		weights, biases := l.weights(parameters), l.biases(parameters)
		for n := range samples {
			out := w.activation[i+1][n*l.out:][:l.out]
			copy(out, biases)
			addScaledRows(out, w.activation[i][n*l.in:][:l.in], weights)
			if i == len(w.layers)-1 {
				softmax(out)
				continue
			}
			for j, x := range out {
				out[j] = math.Tanh(x)
			}
		}
	}
}

// softmax replaces scores by probabilities; it subtracts the largest score first, so that no exponential overflows.
func softmax(scores []float64) {
	largest := scores[0]
	for _, s := range scores {
		largest = max(largest, s)
	}
	sum := 0.0
	for i, s := range scores {
		scores[i] = math.Exp(s - largest)
		sum += scores[i]
	}
	for i := range scores {
		scores[i] /= sum
	}
}

// score compares the probabilities with the labels.
func (w *Workspace) score(labels []int) Totals {
	totals := Totals{Samples: len(labels)}
	classes := w.shape.Classes
	probabilities := w.activation[len(w.layers)]
	for n, label := range labels {
		row := probabilities[n*classes:][:classes]
		// A probability that underflowed to zero would make the loss infinite.
		totals.Loss -= math.Log(max(row[label], math.SmallestNonzeroFloat64))
		best := 0
		for c, p := range row {
			if p > row[best] {
				best = c
			}
		}
		if best == label {
			totals.Correct++
		}
	}
	return totals
}

// outputDelta computes the derivative of cross-entropy by the scores: probability minus one-hot label.
func (w *Workspace) outputDelta(labels []int) {
	classes := w.shape.Classes
	last := len(w.layers) - 1
	delta := w.delta[last]
	copy(delta, w.activation[last+1][:len(labels)*classes])
	for n, label := range labels {
		delta[n*classes+label]--
	}
}

// accumulate adds one layer's share of the gradient.
func (w *Workspace) accumulate(gradient []float64, l layer, input, delta []float64, samples int) {
	transposed := w.transposed[:samples*l.in]
	transpose(transposed, input, samples, l.in)
	weights, biases := l.weights(gradient), l.biases(gradient)
	for i := range l.in {
		addScaledRows(weights[i*l.out:][:l.out], transposed[i*samples:][:samples], delta)
	}
	for n := range samples {
		for j, d := range delta[n*l.out:][:l.out] {
			biases[j] += d
		}
	}
}

// backward carries the derivative from the output of layer i to the output of layer
// i-1, through tanh, whose derivative is 1 - y*y.
func (w *Workspace) backward(parameters []float64, i, samples int) {
	l := w.layers[i]
	weights := l.weights(parameters)
	for n := range samples {
		out := w.delta[i-1][n*l.in:][:l.in]
		dotRows(out, w.delta[i][n*l.out:][:l.out], weights)
		for j, y := range w.activation[i][n*l.in:][:l.in] {
			out[j] *= 1 - y*y
		}
	}
}

// squaredNorms sums the squared norms of the samples' own gradients for one layer. A
// sample's weight gradient is the outer product of input and delta, so its squared
// norm is the product of theirs (Goodfellow 2015, "Efficient per-example gradient
// computations"); the bias adds delta's own.
func squaredNorms(input, delta []float64, l layer, samples int) float64 {
	sum := 0.0
	for n := range samples {
		sum += (squaredNorm(input[n*l.in:][:l.in]) + 1) * squaredNorm(delta[n*l.out:][:l.out])
	}
	return sum
}
