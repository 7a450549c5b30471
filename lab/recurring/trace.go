package recurring

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/libs/contract"
)

// Training is one job on one type of GPU, with all its measurements.
type Training struct {
	GPU, Dataset string
	// MaxEpochs is the number of epochs after which a run gives up.
	MaxEpochs int
	// Default is the user's batch size, or the next smaller measured one: the GPU may have no room for it.
	Default int
	// Batches are in ascending order, and so are the limits of each.
	Batches []Batch
	// MaxPowerWatts is the highest power limit of the GPU.
	MaxPowerWatts float64
}

// Batch is a batch size as it was measured.
type Batch struct {
	Size int
	// Epochs is the number of epochs that each run needed to reach the target; infinite if it never did.
	Epochs []float64
	// Limits are the energy and time of an epoch at each power limit.
	Limits []contract.PowerWindow
}

// job is the definition of a training: its target, the epochs after which it gives up, and its default batch size.
type job struct {
	dataset, network, optimizer string
	target                      float64
	maxEpochs, batch            int
}

// published are the jobs of the published traces.
func published() []job {
	return []job{
		{"cifar100", "shufflenetv2", "adadelta", 0.60, 100, 1024},
		{"imagenet", "resnet50", "adadelta", 0.65, 100, 256},
		{"librispeech", "deepspeech2", "adamw", 40, 16, 192},
		{"movielens-1m", "ncf", "adam", 0.41, 100, 1024},
		{"sentiment140", "bert_base_uncased", "adamw", 0.84, 10, 128},
		{"squad", "bert_base_uncased", "adamw", 84, 6, 32},
	}
}

// Load reads the published jobs on one type of GPU: the files summary_train.csv and summary_power_GPU.csv.
func Load(files fs.FS, gpu string) ([]Training, error) {
	runs, err := rows.Read(files, "summary_train.csv", "dataset", "network", "optimizer", "batch_size", "target_metric", "target_epoch")
	if err != nil {
		return nil, err
	}
	power, err := rows.Read(files, "summary_power_"+gpu+".csv", "dataset", "network", "optimizer", "batch_size", "power_limit", "time_per_epoch", "average_power")
	if err != nil {
		return nil, err
	}
	maxPower := 0.0
	for _, row := range power {
		watts, err := row.Number("power_limit")
		if err != nil {
			return nil, err
		}
		maxPower = max(maxPower, watts)
	}
	var all []Training
	for _, j := range published() {
		t := Training{GPU: gpu, Dataset: j.dataset, MaxEpochs: j.maxEpochs, MaxPowerWatts: maxPower}
		if t.Batches, err = j.join(runs, power); err != nil {
			return nil, err
		}
		if len(t.Batches) == 0 {
			continue
		}
		t.Default = t.Batches[0].Size
		for _, b := range t.Batches {
			if b.Size <= j.batch {
				t.Default = b.Size
			}
		}
		reaches := func(b Batch) bool { return b.Size == t.Default && slices.Min(b.Epochs) <= float64(t.MaxEpochs) }
		if !slices.ContainsFunc(t.Batches, reaches) {
			return nil, fmt.Errorf("load %s on %s: no run with its default batch size %d reached the target", j.dataset, gpu, t.Default)
		}
		all = append(all, t)
	}
	return all, nil
}

// join collects the batch sizes with both measured runs and measured power.
func (j job) join(runs, power []rows.Row) ([]Batch, error) {
	batches := map[int]*Batch{}
	for _, row := range power {
		if !j.is(row) {
			continue
		}
		size, e, err := readEpoch(row)
		if err != nil {
			return nil, err
		}
		if batches[size] == nil {
			batches[size] = &Batch{Size: size}
		}
		batches[size].Limits = append(batches[size].Limits, e)
	}
	for _, row := range runs {
		if !j.is(row) {
			continue
		}
		size, target, epochs, err := readRun(row)
		if err != nil {
			return nil, err
		}
		if b := batches[size]; b != nil && math.Abs(target-j.target) < 1e-9 {
			b.Epochs = append(b.Epochs, epochs)
		}
	}
	var all []Batch
	for _, b := range batches {
		if len(b.Epochs) == 0 {
			continue
		}
		slices.SortFunc(b.Limits, func(a, c contract.PowerWindow) int { return cmp.Compare(a.LimitWatts, c.LimitWatts) })
		all = append(all, *b)
	}
	slices.SortFunc(all, func(a, b Batch) int { return a.Size - b.Size })
	return all, nil
}

func (j job) is(row rows.Row) bool {
	return row.Text("dataset") == j.dataset && row.Text("network") == j.network && row.Text("optimizer") == j.optimizer
}

// readEpoch reads a row of the power measurements.
func readEpoch(r rows.Row) (size int, e contract.PowerWindow, err error) {
	batch, err := r.Number("batch_size")
	if err != nil {
		return 0, e, err
	}
	if e.LimitWatts, err = r.Number("power_limit"); err != nil {
		return 0, e, err
	}
	if e.Seconds, err = r.Number("time_per_epoch"); err != nil {
		return 0, e, err
	}
	watts, err := r.Number("average_power")
	e.EnergyJoules = watts * e.Seconds
	return int(batch), e, err
}

// readRun reads a row of the runs of training.
func readRun(r rows.Row) (size int, target, epochs float64, err error) {
	batch, err := r.Number("batch_size")
	if err != nil {
		return 0, 0, 0, err
	}
	if target, err = r.Number("target_metric"); err != nil {
		return 0, 0, 0, err
	}
	if reached := r.Text("target_epoch"); reached == "" || strings.EqualFold(reached, "nan") {
		return int(batch), target, math.Inf(1), nil
	}
	epochs, err = r.Number("target_epoch")
	return int(batch), target, epochs, err
}
