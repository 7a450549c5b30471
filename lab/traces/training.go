package traces

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Training is the course of an application's training at several global batch sizes, epoch by epoch.
type Training struct {
	runs    []trainingRun
	batches []float64
	// ends is the progress at which epoch e ends, at place e; ends[0] is 0.
	ends []float64
}

// trainingRun is one training at a fixed batch. Progress is in steps at the base batch.
type trainingRun struct {
	batch                                 int
	progress, iteration, square, variance []float64
}

// ParseTraining reads trainings by batch size.
func ParseTraining(name string, files map[int][]byte, epochs int) (Training, error) {
	var t Training
	for batch, data := range files {
		file := fmt.Sprintf("%s/validation-%d", name, batch)
		all, err := rows.Parse(file, data, "progress", "iteration", "grad_sqr", "grad_var")
		if err != nil {
			return Training{}, err
		}
		if len(all) < epochs {
			return Training{}, fmt.Errorf("parse %s: %d epochs, want %d", file, len(all), epochs)
		}
		run := trainingRun{batch: batch}
		for _, row := range all {
			x, err := row.Numbers("progress", "iteration", "grad_sqr", "grad_var")
			if err != nil {
				return Training{}, err
			}
			run.progress, run.iteration = append(run.progress, x[0]), append(run.iteration, x[1])
			run.square, run.variance = append(run.square, x[2]), append(run.variance, x[3])
		}
		t.runs = append(t.runs, run)
	}
	if len(t.runs) == 0 {
		return Training{}, fmt.Errorf("parse %s: no training", name)
	}
	slices.SortFunc(t.runs, func(x, y trainingRun) int { return cmp.Compare(x.batch, y.batch) })
	t.ends = make([]float64, epochs+1)
	for e := 1; e <= epochs; e++ {
		t.ends[e] = math.Inf(1)
		for _, r := range t.runs {
			t.ends[e] = min(t.ends[e], r.progress[e-1])
		}
	}
	for _, r := range t.runs {
		t.batches = append(t.batches, float64(r.batch))
	}
	return t, nil
}

// noise is the gradient noise in an epoch (from 0) at a global batch size.
func (t Training) noise(batch, epoch int) (square, variance float64) {
	low, high, w := between(t.batches, float64(batch))
	a, b := t.runs[low], t.runs[high]
	return a.square[epoch] + (b.square[epoch]-a.square[epoch])*w, a.variance[epoch] + (b.variance[epoch]-a.variance[epoch])*w
}

// gain is the progress of one step.
func (t Training) gain(batch, epoch, base int) float64 {
	square, variance := t.noise(batch, epoch)
	return (variance + square) / (variance*float64(base)/float64(batch) + square)
}

// observed is the noise as the training code reports it.
func (t Training) observed(batch, epoch, base int) *train.Efficiency {
	square, variance := t.noise(batch, epoch)
	return &train.Efficiency{Variance: variance, Square: square, BaseBatch: base}
}

// iterations is the cumulative number of steps at the end of an epoch (from 0) at a global batch.
func (t Training) iterations(batch, epoch int) float64 {
	low, high, w := between(t.batches, float64(batch))
	a, b := t.runs[low].iteration[epoch], t.runs[high].iteration[epoch]
	return a + (b-a)*w
}

// samplesPerEpoch is the size of the training set, which the user declares.
func (t Training) samplesPerEpoch() int { return t.runs[0].batch * int(t.runs[0].iteration[0]) }
