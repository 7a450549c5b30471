// Package file reads experiments: Switchyard's own YAML, PipeTune's configuration and BigDL's job files. It turns each
// into an Experiment, a trial into a job, and the report of a trial into the result that a search compares. It reads
// texts, not files, and runs nothing.
package file

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// The modes.
const (
	V1       = contract.ModeV1
	V2       = contract.ModeV2
	PipeTune = contract.ModePipeTune
)

// Modes lists them.
func Modes() []contract.ExperimentMode { return []contract.ExperimentMode{V1, V2, PipeTune} }

// Experiment is what a user asks for.
type Experiment contract.Experiment

// Names of the system parameters.
const (
	Cores      = train.SettingCores
	MemoryMiB  = train.SettingMemoryMiB
	Devices    = train.SettingDevices
	MicroBatch = train.SettingMicroBatch
	PowerLimit = train.SettingPowerLimit
)

// CheckFactor checks a system parameter that did not come from a file.
func CheckFactor(f contract.Factor) error {
	if !slices.Contains(train.SettingNames(), f.Name) {
		return fmt.Errorf("system: %.80q is none of %s", f.Name, strings.Join(train.SettingNames(), ", "))
	}
	if len(f.Values) == 0 {
		return fmt.Errorf("system.%s: want a list of values, the default first", f.Name)
	}
	for i, x := range f.Values {
		if wrongValue(f.Name, x) || slices.Contains(f.Values[:i], x) {
			return fmt.Errorf("system.%s: %g: want numbers above 0, whole unless it is a power limit, each once", f.Name, x)
		}
	}
	return nil
}

// wrongValue reports whether x is no value for a system parameter.
func wrongValue(name string, x float64) bool {
	return !(x > 0) || name != PowerLimit && x != math.Trunc(x) || x > math.MaxInt32
}

// MostSettings bounds the combinations of values of system parameters, because a decision weighs all of them.
const MostSettings = 1024

// Combinations returns the number of settings that system parameters make.
func Combinations(system []contract.Factor) float64 {
	n := 1.0
	for _, f := range system {
		n *= float64(len(f.Values))
	}
	return n
}

// Report describes a trial at the end of an epoch.
type Report struct {
	Epoch   int                `json:"epoch"`
	Metrics map[string]float64 `json:"metrics"`
	// Seconds and Joules are sums over all epochs so far; 0 if they were not measured.
	Seconds float64 `json:"seconds,omitempty"`
	Joules  float64 `json:"joules,omitempty"`
}

// Result turns a report into the result that searches compare. The error names a missing metric, or a divisor that was
// not measured.
func (e Experiment) Result(r Report) (search.Result, error) {
	result := search.Result{Epoch: r.Epoch}
	if _, ok := r.Metrics[e.Objective.Metric]; !ok {
		return result, fmt.Errorf("epoch %d: no metric %s among %s", r.Epoch, e.Objective.Metric, listed(r.Metrics))
	}
	score, known := e.Objective.Value(r.Metrics, r.Seconds, r.Joules)
	if !known {
		return result, fmt.Errorf("epoch %d: %s: the %s was not measured", r.Epoch, e.Objective, e.Objective.Per)
	}
	if result.Score = score; e.Objective.Minimise {
		result.Score = -result.Score
	}
	for _, c := range e.Constraints {
		x, ok := r.Metrics[c.Metric]
		if !ok {
			return result, fmt.Errorf("epoch %d: no metric %s among %s", r.Epoch, c.Metric, listed(r.Metrics))
		}
		result.Slack = append(result.Slack, c.Slack(x))
	}
	return result, nil
}

func listed(metrics map[string]float64) string {
	if len(metrics) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(metrics)), ", ")
}

// SearchSpace returns the parameters that the search chooses. In mode v2 they include the system parameters.
func (e Experiment) SearchSpace() search.Space {
	space := slices.Clone(e.Space)
	if e.Mode != V2 {
		return space
	}
	for _, f := range e.System {
		p := contract.Parameter{Name: f.Name, Kind: search.Choice}
		for _, x := range f.Values {
			p.Values = append(p.Values, contract.Number(x))
		}
		space = append(space, p)
	}
	return space
}

// Searcher returns the search that decides on trials. A file that was read without an error has one.
func (e Experiment) Searcher() (search.Searcher, error) {
	s, err := search.New(e.SearchSpace(), e.Search)
	if err != nil {
		return nil, fmt.Errorf("search of experiment %s: %w", e.Name, err)
	}
	return s, nil
}

// Setting returns the system parameters that a trial starts with: the defaults or, in mode v2, the choice of the
// search.
func (e Experiment) Setting(params search.Params) map[string]float64 {
	setting := map[string]float64{}
	for _, f := range e.System {
		setting[f.Name] = f.Values[0]
		if x, ok := params[f.Name].Float(); ok && e.Mode == V2 {
			setting[f.Name] = x
		}
	}
	return setting
}

// TrialJob returns the job of a trial that begins with a setting of system parameters: the one from Setting, or a later
// one.
func (e Experiment) TrialJob(trial, epochs int, params search.Params, setting map[string]float64) train.Spec {
	return contract.Experiment(e).TrialJob(trial, epochs, params, int(setting[Devices]))
}

// texts yields the texts of the job that may contain ${name}, with their fields.
func (e Experiment) texts() iter.Seq2[string, string] {
	return func(yield func(field, text string) bool) {
		for i, word := range e.Job.Command {
			if !yield(fmt.Sprintf("command[%d]", i), word) {
				return
			}
		}
		if !yield("script_path", e.Job.ScriptPath) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(e.Job.Env)) {
			if !yield("env."+name, e.Job.Env[name]) {
				return
			}
		}
	}
}

// FrozenEpochs returns a field of the job that contains ${epochs} although the search promotes trials, and why that is
// wrong. Both are empty if there is none.
func (e Experiment) FrozenEpochs() (field, wrong string) {
	if e.Search.Algorithm != search.ASHA && e.Search.Algorithm != search.Hyperband {
		return "", ""
	}
	for field, text := range e.texts() {
		for name := range train.Placeholders(text) {
			if name == epochsWord {
				return "job." + field, fmt.Sprintf("a job is submitted once: ${%s} would stay the epochs of the first rung of %s, and no trial could go on after them", epochsWord, e.Search.Algorithm)
			}
		}
	}
	return "", ""
}

// Names with a meaning of their own.
const (
	epochsWord = contract.EpochsWord
	batchSize  = contract.BatchSizeParameter
)
