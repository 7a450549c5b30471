package contest

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// cell is a configuration with recorded trainings.
type cell struct{ rate, batch float64 }

// records are the errors, in percent, that trainings of each cell ended with, by their number of epochs.
type records map[cell]map[int][]float64

// LoadRecorded reads trainings recorded by PipeTune's offline experiments, files named TuneV?Vary_<job>_<cores>.csv
// with the columns learning rate, epochs, batch size and error in percent. It returns a problem for each job, over
// all its files: the number of cores changes how long a training takes and not where it ends.
func LoadRecorded(folder fs.FS) ([]Problem, error) {
	files, err := fs.Glob(folder, "TuneV*Vary_*_*.csv")
	if err != nil {
		return nil, fmt.Errorf("find recorded trainings: %w", err)
	}
	jobs := map[string]records{}
	var names []string
	for _, file := range files {
		name := strings.Split(path.Base(file), "_")[1]
		if jobs[name] == nil {
			jobs[name], names = records{}, append(names, name)
		}
		if err := jobs[name].read(folder, file); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		return nil, errors.New("find recorded trainings: no file TuneV*Vary_*_*.csv")
	}
	slices.Sort(names)
	problems := make([]Problem, len(names))
	for i, name := range names {
		problems[i] = jobs[name].problem(name)
	}
	return problems, nil
}

func (r records) read(folder fs.FS, file string) error {
	text, err := fs.ReadFile(folder, file)
	if err != nil {
		return fmt.Errorf("read recorded trainings: %w", err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for i, row := range rows {
		if len(row) < 4 {
			return fmt.Errorf("read %s: row %d: want learning rate, epochs, batch size, error", file, i+1)
		}
		var x [4]float64
		for j := range x {
			if x[j], err = strconv.ParseFloat(row[j], 64); err != nil {
				return fmt.Errorf("read %s: row %d: %w", file, i+1, err)
			}
		}
		c := cell{x[0], x[2]}
		if r[c] == nil {
			r[c] = map[int][]float64{}
		}
		r[c][int(x[1])] = append(r[c][int(x[1])], x[3])
	}
	return nil
}

// problem is the search among the recorded cells. A trial reports after each recorded number of epochs: the error of
// one of its cell's recordings, drawn at random. If no longer training of the cell was recorded, the next shorter one
// counts: long trainings were recorded of promising cells only.
func (r records) problem(name string) Problem {
	var rates, batches []float64
	epochs := []int{}
	for c, byEpochs := range r {
		rates, batches = append(rates, c.rate), append(batches, c.batch)
		for e := range byEpochs {
			epochs = append(epochs, e)
		}
	}
	unique := func(list []float64) []contract.Value {
		slices.Sort(list)
		return numbers(slices.Compact(list)...)
	}
	known := func(p search.Params, epoch int) []float64 {
		last, errs := 0, []float64(nil)
		for e, list := range r[cell{at(p, "learning_rate"), at(p, "batch_size")}] {
			if e <= epoch && e > last {
				last, errs = e, list
			}
		}
		return errs
	}
	whole := slices.Max(epochs)
	return Problem{
		Name: name, MaxEpochs: whole, MinEpochs: slices.Min(epochs), Reduction: 4,
		Space: search.Space{
			{Name: "learning_rate", Kind: search.Choice, Values: unique(rates)}, {Name: "batch_size", Kind: search.Choice, Values: unique(batches)},
		},
		Score: func(p search.Params, epoch int, draw *rand.Rand) float64 {
			errs := known(p, epoch)
			if len(errs) == 0 || !slices.Contains(epochs, epoch) {
				return math.NaN()
			}
			return -errs[draw.IntN(len(errs))]
		},
		Quality: func(p search.Params) float64 {
			errs := known(p, whole)
			if len(errs) == 0 {
				return math.Inf(-1)
			}
			return -stat.Mean(errs, nil)
		},
	}
}
