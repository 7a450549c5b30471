// Package tuning replays trials on epochs that were measured once at every setting, with the same rules as the live
// service. A change of the setting is free and an epoch takes the mean of those measured, so totals depend on the
// grid and the rule alone.
package tuning

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/pipeline"
)

// Grid holds the durations of epochs, in the order of its file.
type Grid []Workload

// Workload is one training with one batch size.
type Workload struct {
	// Name is model/dataset/batch.
	Name      string
	BatchSize float64
	cells     []cell
}

// cell is the duration of an epoch at a setting, in seconds.
type cell struct {
	setting contract.SettingValues
	seconds float64
}

// fewestEpochs is the least number of epochs of a valid run: a run that ended with its first epoch was broken off in
// it.
const fewestEpochs = 2

const mebibytes = 1024 // in a GiB

// LoadGrid reads a file with the columns model, dataset, cores, memory_gb, batch, n_epochs and epoch_s_mean.
func LoadGrid(files fs.FS, name string) (Grid, error) {
	lines, err := rows.Read(files, name, "model", "dataset", "cores", "memory_gb", "batch", "n_epochs", "epoch_s_mean")
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("parse %s: no epoch in it", name)
	}
	var g Grid
	for _, line := range lines {
		var cores, memory, batch, epochs, seconds float64
		for column, into := range map[string]*float64{
			"cores": &cores, "memory_gb": &memory, "batch": &batch, "n_epochs": &epochs, "epoch_s_mean": &seconds,
		} {
			if *into, err = line.Number(column); err != nil {
				return nil, err
			}
		}
		if epochs < fewestEpochs {
			continue
		}
		if cores == 0 || memory == 0 || seconds == 0 {
			return nil, fmt.Errorf("parse %s: cores, memory and the time of an epoch must be more than 0", line.Where())
		}
		w := g.workload(line.Text("model")+"/"+line.Text("dataset")+"/"+line.Text("batch"), batch)
		w.cells = append(w.cells, cell{contract.SettingValues{pipeline.Cores: cores, pipeline.Memory: memory * mebibytes}, seconds})
	}
	return g, nil
}

func (g *Grid) workload(name string, batch float64) *Workload {
	i := slices.IndexFunc(*g, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		*g = append(*g, Workload{Name: name, BatchSize: batch})
		i = len(*g) - 1
	}
	return &(*g)[i]
}

// Values are those that a factor has in the grid, the greatest first.
func (g Grid) Values(factor string) []float64 {
	var values []float64
	for _, w := range g {
		for _, c := range w.cells {
			if v := c.setting[factor]; !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	slices.Sort(values)
	slices.Reverse(values)
	return values
}

// Cases are the workloads that can be replayed in a space: they were measured at its default and at a setting that
// differs from it in one factor. Only measured settings can be chosen.
func (g Grid) Cases(space pipeline.Space) []Case {
	var cases []Case
	for _, w := range g {
		c := Case{Workload: w}
		for _, s := range space.Settings() {
			if _, ok := w.Seconds(s); ok {
				c.Settings = append(c.Settings, s)
			}
		}
		base := space.Settings()[0]
		if len(c.Settings) > 1 && c.Settings[0].Equal(base) && pipeline.OneFactor(base, c.Settings[1]) {
			cases = append(cases, c)
		}
	}
	return cases
}

// Seconds returns the duration of an epoch at a setting; false if it was not measured.
func (w *Workload) Seconds(s contract.SettingValues) (float64, bool) {
	i := slices.IndexFunc(w.cells, func(c cell) bool { return c.setting.Equal(s) })
	if i < 0 {
		return 0, false
	}
	return w.cells[i].seconds, true
}
