// Package servers plays jobs with parameter servers in virtual time: the nine trainings of Optimus (Peng et al.,
// EuroSys'18) on a cluster of its size, under the planner's own policy optimus and under DRF and Tetris. The paper
// publishes no traces, so step times are computed from its speed function and what it says of the models.
package servers

import (
	"math/rand/v2"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// training is one of the nine: what the paper's Table 1 says, the time that a container of five cores takes for a
// sample, and how many epochs it needs until its loss has converged. The last two are assumptions.
type training struct {
	name          string
	parameters    float64 // millions
	samples       int
	batch         int
	sampleSeconds float64
	epochs        int
}

func trainings() []training {
	return []training{
		{"resnext-110", 1.7, 60_000, 128, 0.012, 40},
		{"resnet-50", 25, 131_379, 32, 0.09, 12}, // a tenth of ImageNet, as the paper shortens large sets
		{"inception-bn", 11.3, 30_607, 64, 0.05, 25},
		{"kaggle", 1.4, 37_920, 64, 0.02, 30},
		{"cnn-rand", 6, 10_662, 50, 0.004, 60},
		{"dssm", 1.5, 214_288, 256, 0.002, 20},
		{"rnn-lstm", 4.7, 100_200, 128, 0.008, 25},
		{"seq2seq", 9.1, 100_000, 64, 0.02, 20},
		{"deepspeech2", 38, 45_000, 32, 0.1, 15},
	}
}

// Job is a training that was submitted.
type Job struct {
	Name string
	// At is the time of its submission, from the beginning.
	At     time.Duration
	Async  bool
	Epochs int
	Batch  int
	// Samples of an epoch.
	Samples int
	// Truth is the time of its steps.
	Truth train.Servers
}

// Arrivals are within this time, as in the paper's experiment.
const Arrivals = 12_000 * time.Second

// network is the bandwidth of a server in bytes a second (1 Gbit/s), parameterBytes the size of a parameter.
const (
	network        = 125e6
	parameterBytes = 4
)

// Jobs draws a workload: each training once for every nine jobs, at a random time, synchronous or not, with the loss at
// which it has converged anywhere between half and all of its epochs. unevenness is by how much the busiest server
// exceeds the mean: 1 if the blocks of parameters are balanced (PAA).
func Jobs(seed uint64, n int, unevenness float64) []Job {
	dice := rand.New(rand.NewPCG(seed, 1))
	var jobs []Job
	all := trainings()
	for i := range n {
		t := all[i%len(all)]
		exchange := 2 * t.parameters * 1e6 * parameterBytes / network * unevenness
		jobs = append(jobs, Job{
			Name: t.name, At: time.Duration(dice.Float64() * float64(Arrivals)), Async: dice.IntN(2) == 1, Batch: t.batch, Samples: t.samples,
			Epochs: max(int(float64(t.epochs)*(0.5+dice.Float64()/2)), 1),
			// One worker's step: its samples, an update, the exchange with the servers, and what each more of them costs.
			Truth: train.Servers{PerSample: t.sampleSeconds, Fixed: 0.05, PerShare: exchange, PerWorker: 0.01, PerServer: 0.01},
		})
	}
	return jobs
}
