package conduct

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// workload is the same for trainings whose epochs cost the same: the same program in the same place, on the same data with the same batch size and resources, with the
// same values of the parameters that change what an epoch costs, and costs in the same unit.
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

// digest tells environments apart without telling them: they may hold secrets, and the ground truth is shown and exported.
func digest(env map[string]string) string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		_, _ = fmt.Fprintf(sum, "%q=%q\n", name, env[name])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// resources are those of the job that no system parameter chooses, since what one chooses is in the settings, and the names of those that are nothing of the job's but
// for a system parameter: the settings of a workload have the same names.
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
	if n := r.Experiment.BatchDevices(); n > 0 { // of other numbers a step of the same batch size has other samples
		words = append(words, fmt.Sprintf("%s of a batch:%d", file.Devices, n))
	}
	return words
}

func (r *Record) tunes(parameter string) bool {
	return slices.ContainsFunc(r.Experiment.System, func(f file.Factor) bool { return f.Name == parameter })
}

// costs says whether a parameter changes what an epoch costs. That is what the experiment says or, where it says nothing, it is those whose values are all whole numbers,
// or texts: layers, widths, names of models and optimizers. What has fractions, or is drawn from a range of them, changes what is learnt: rates, momenta, parts that are
// dropped. The batch size is told apart in any case.
func (r *Record) costs(p search.Parameter) bool {
	switch {
	case p.Name == batchSize:
		return false
	case r.Experiment.Costs != nil:
		return slices.Contains(r.Experiment.Costs, p.Name)
	case p.Kind != search.Choice:
		return p.Kind == search.Int || p.Kind == search.LogInt
	}
	return !slices.ContainsFunc(p.Values, func(v search.Value) bool {
		x, number := v.Float()
		return number && x != math.Trunc(x)
	})
}

// workloads is how many the trials of the space fall into.
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
