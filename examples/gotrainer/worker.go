package main

import (
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/dataset"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/nn"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
)

// The values after the gradient in the vector that is summed over all workers.
const (
	tailLoss = iota
	tailSquaredNorms
	tailCorrect
	tailSamples
	tailLength
)

// worker computes on one device's share. Its number counts over the whole job.
type worker struct {
	number  int
	shape   nn.Shape
	sampler *dataset.Sampler
	work    *nn.Workspace
	indices []int
	inputs  []float64
	labels  []int
}

// team is the workers of this process and the vectors that they sum.
type team struct {
	exchange exchange
	workers  []*worker
	parts    [][]float64 // one per worker: its gradient, then the tail
	sum      []float64   // over all workers of all processes
	slowBy   time.Duration
}

func newTeam(s settings, e exchange) *team {
	set := dataset.New(s.seed, s.shape.Features, s.shape.Classes)
	length := s.shape.Parameters() + tailLength
	c := &team{exchange: e, sum: make([]float64, length), slowBy: s.slowBy}
	for i := range s.workers {
		c.parts = append(c.parts, make([]float64, length))
		w := &worker{number: s.rank*s.workers + i, shape: s.shape, sampler: set.Sampler()}
		w.reserve(s.batch)
		c.workers = append(c.workers, w)
	}
	return c
}

// reserve makes room for passes of a number of samples.
func (w *worker) reserve(samples int) {
	if samples > len(w.labels) {
		w.work = nn.NewWorkspace(w.shape, samples)
		w.inputs, w.labels = make([]float64, samples*w.shape.Features), make([]int, samples)
	}
}

// each runs task for every worker at once and waits; a single one runs right here.
func (c *team) each(task func(w *worker, part []float64)) {
	if len(c.workers) == 1 {
		task(c.workers[0], c.parts[0])
		return
	}
	var all sync.WaitGroup
	for i, w := range c.workers {
		all.Go(func() { task(w, c.parts[i]) })
	}
	all.Wait()
}

// gradient sums the gradient of one step over all workers, which have had samples in the epoch; the result is in sum.
// Each worker goes over its share of the batch in passes of at most micro. It also returns how long the sum over all
// processes took, which is mostly waiting for the slowest.
func (c *team) gradient(weights []float64, schedule dataset.Schedule, order []int, had, batch, micro int) (waited time.Duration, err error) {
	c.each(func(w *worker, part []float64) {
		w.reserve(micro)
		w.indices = schedule.Append(w.indices[:0], order, had, batch, w.number)
		gradient := part[:len(weights)]
		clear(gradient)
		var totals nn.Totals
		for pass := range slices.Chunk(w.indices, micro) {
			if c.slowBy > 0 {
				time.Sleep(c.slowBy)
			}
			for i, index := range pass {
				w.labels[i] = w.sampler.Training(index, w.inputs[i*w.shape.Features:][:w.shape.Features])
			}
			totals.Add(w.work.AddGradient(gradient, weights, w.inputs, w.labels[:len(pass)]))
		}
		setTail(part[len(weights):], totals)
	})
	ring.SumInOrder(c.sum, c.parts)
	ready := time.Now()
	err = c.exchange.AllReduce(c.sum)
	return time.Since(ready), err
}

// evaluate measures the network on samples held out from training, divided among the workers.
func (c *team) evaluate(weights []float64, samples, totalWorkers, batch int) (accuracy float64, err error) {
	sum := c.sum[len(weights):]
	tails := make([][]float64, len(c.parts))
	c.each(func(w *worker, part []float64) {
		tail := part[len(weights):]
		clear(tail)
		end := (w.number + 1) * samples / totalWorkers
		for begin := w.number * samples / totalWorkers; begin < end; begin += batch {
			n := min(batch, end-begin)
			for i := range n {
				w.labels[i] = w.sampler.HeldOut(begin+i, w.inputs[i*w.shape.Features:][:w.shape.Features])
			}
			totals := w.work.Evaluate(weights, w.inputs, w.labels[:n])
			tail[tailCorrect] += float64(totals.Correct)
			tail[tailSamples] += float64(totals.Samples)
		}
	})
	for i, part := range c.parts {
		tails[i] = part[len(weights):]
	}
	ring.SumInOrder(sum, tails)
	if err := c.exchange.AllReduce(sum); err != nil {
		return 0, err
	}
	return sum[tailCorrect] / sum[tailSamples], nil
}

func setTail(tail []float64, totals nn.Totals) {
	tail[tailLoss] = totals.Loss
	tail[tailSquaredNorms] = totals.SquaredNorms
	tail[tailCorrect] = float64(totals.Correct)
	tail[tailSamples] = float64(totals.Samples)
}
