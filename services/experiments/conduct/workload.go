package conduct

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// workload identifies trainings whose epochs cost the same: the same program in the same place, on the same data with
// the same batch size and resources, with the same values of the parameters that change the cost of an epoch, and costs
// in the same unit.
func (r *Record) workload(params search.Params, batch float64) string {
	job := r.Experiment.Job
	job.BatchSize = 0
	words := []string{job.Signature(), job.WorkDir, job.DatasetsDir, fmt.Sprint(job.TrainingSetSize), fmt.Sprint(batch)}
	if len(job.Env) > 0 {
		words = append(words, "env:"+digest(job.Env))
	}
	words = append(words, r.resources()...)
	for _, p := range r.Experiment.Space {
		if v, exists := params[p.Name]; exists && r.costs(p) {
			words = append(words, p.Name+":"+v.String())
		}
	}
	return strings.Join(append(words, r.unit()), " ")
}

// title names a workload for people: the experiment, the program, and the parameters that change the cost of an epoch.
func (r *Record) title(params search.Params) string {
	words := []string{r.Experiment.Name}
	if p := program(r.Experiment.Job); p != "" {
		words = append(words, p)
	}
	for _, p := range r.Experiment.Space {
		if v, exists := params[p.Name]; exists && r.costs(p) {
			words = append(words, p.Name+"="+v.String())
		}
	}
	return strings.Join(words, " ")
}

// program returns the base name of a job's program: its script if the command names one, else what is started.
func program(job train.Spec) string {
	words := append([]string{job.ScriptPath}, job.Command...)
	i := slices.IndexFunc(words, func(word string) bool { return slices.Contains([]string{".py", ".sh", ".jar", ".R"}, path.Ext(word)) })
	switch {
	case i >= 0:
		return path.Base(words[i])
	case len(job.Command) > 0:
		return path.Base(job.Command[0])
	}
	return ""
}

// digest distinguishes environments without revealing them: they may hold secrets, and the ground truth is shown and
// exported.
func digest(env map[string]string) string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(sum, "%q=%q\n", name, env[name])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// resources returns the job's resources that no system parameter chooses (the chosen ones are in the settings), and the
// names of those that only a system parameter sets: the settings of a workload have the same names.
func (r *Record) resources() []string {
	job := r.Experiment.Job.WithDefaults()
	words := []string{"launch:" + string(job.Launch)}
	for _, given := range []struct{ parameter, value string }{
		{file.Devices, fmt.Sprintf("%d-%d", job.MinDevices, job.MaxDevices)},
		{file.Cores, fmt.Sprint(job.Cores)},
		{file.MemoryMiB, fmt.Sprint(job.MainMemoryMiB)},
	} {
		if !r.tunes(given.parameter) {
			words = append(words, given.parameter+":"+given.value)
		}
	}
	for _, parameter := range []string{file.MicroBatch, file.PowerLimit} {
		if r.tunes(parameter) {
			words = append(words, parameter)
		}
	}
	// On other numbers of devices a step of the same batch size has other samples.
	if n := r.experiment().BatchDevices(); n > 0 {
		words = append(words, fmt.Sprintf("%s of a batch:%d", file.Devices, n))
	}
	return words
}

func (r *Record) tunes(parameter string) bool {
	return slices.ContainsFunc(r.Experiment.System, func(f contract.Factor) bool { return f.Name == parameter })
}

// costs reports whether a parameter changes the cost of an epoch. The experiment says so or, by default, a parameter
// does if its values are all whole numbers, or texts: layers, widths, names of models and optimizers. Values with
// fractions, or drawn from a continuous range, change the result instead: rates, momenta, dropout. The batch size is
// treated separately.
func (r *Record) costs(p contract.Parameter) bool {
	switch {
	case p.Name == batchSize:
		return false
	case r.Experiment.Costs != nil:
		return slices.Contains(r.Experiment.Costs, p.Name)
	case p.Kind != search.Choice:
		return p.Kind == search.Int || p.Kind == search.LogInt
	}
	return !slices.ContainsFunc(p.Values, func(v contract.Value) bool {
		x, number := v.Float()
		return number && x != math.Trunc(x)
	})
}

// workloads returns the number of workloads among the trials of the space.
func (r *Record) workloads() float64 {
	n := 1.0
	for _, p := range r.Experiment.Space {
		switch {
		case p.Name != batchSize && !r.costs(p):
		case p.Kind == search.Choice:
			n *= float64(max(len(p.Values), 1))
		case p.Kind == search.Int || p.Kind == search.LogInt:
			n *= math.Floor(p.High) - math.Ceil(p.Low) + 1
		}
	}
	return n
}
