package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// EpochsWord stands in a job's texts for the epochs to train.
const EpochsWord = "epochs"

// BatchSizeParameter is the parameter that the batch size of a trial's job follows.
const BatchSizeParameter = "batch_size"

// Sizes returns the numbers of devices that a running trial may get. It is submitted with the first. The list is nil
// if the number does not change while a trial runs.
func (e Experiment) Sizes() []float64 {
	i := slices.IndexFunc(e.System, func(f Factor) bool { return f.Name == train.SettingDevices && !f.Fixed })
	if i < 0 || e.Mode != ModePipeTune {
		return nil
	}
	return e.System[i].Values
}

// TrialJob returns the job of a trial that begins on a number of devices, 0 if the job says it. The job finds
// parameters in its environment (train.ParameterVariable), and ${name} in its texts is replaced by a parameter,
// ${epochs} by the epochs to train. A parameter that the trial does not have is replaced by nothing. System parameters
// are filled in as an attempt starts, since they change. The batch size of the job follows batch_size. Its number of
// devices follows devices, unless that changes while trials run. MaxEpochs stays that of a whole training.
func (e Experiment) TrialJob(trial, epochs int, params map[string]Value, devices int) train.Spec {
	job := e.Job
	job.Name = fmt.Sprintf("%s-%d", e.Name, trial)
	words := map[string]string{EpochsWord: strconv.Itoa(epochs)}
	job.Env = maps.Clone(job.Env)
	if job.Env == nil {
		job.Env = map[string]string{}
	}
	for _, p := range e.Space {
		words[p.Name] = ""
		if v, ok := params[p.Name]; ok {
			words[p.Name] = v.String()
			job.Env[train.ParameterVariable(p.Name)] = v.String()
		}
	}
	job.Command = slices.Clone(job.Command)
	for i, word := range job.Command {
		job.Command[i] = train.Filled(word, words)
	}
	job.ScriptPath = train.Filled(job.ScriptPath, words)
	for name, value := range job.Env {
		job.Env[name] = train.Filled(value, words)
	}
	if batch, ok := params[BatchSizeParameter].Float(); ok {
		job.BatchSize = int(batch)
	}
	if sizes := e.Sizes(); len(sizes) > 0 {
		devices = int(sizes[0])
	}
	if devices > 0 {
		job = job.Expanded()
		job.MinDevices, job.MaxDevices = devices, devices
	}
	if len(e.Sizes()) > 1 && job.Strategy == "" {
		job.Strategy = train.StrategyAllReduce
	}
	return job
}

// Tries reports whether a job is what this experiment makes of a trial with parameters of its space. Then the person
// who asked for the experiment has asked for this job, no matter who submits it.
func (e Experiment) Tries(trial int, job train.Spec) bool {
	params := map[string]Value{}
	for _, p := range e.Space {
		if text, given := job.Env[train.ParameterVariable(p.Name)]; given {
			v, is := p.parse(text)
			if !is {
				return false
			}
			params[p.Name] = v
		}
	}
	got, err := json.Marshal(job)
	if err != nil {
		return false
	}
	epochs := 1
	if e.namesEpochs() {
		epochs = e.Search.MaxEpochs
	}
	devices := []int{0, job.MaxDevices}
	for ; epochs > 0; epochs-- {
		for _, n := range devices {
			want, err := json.Marshal(e.TrialJob(trial, epochs, params, n))
			if err == nil && bytes.Equal(got, want) && (n == 0 || e.mayHave(n)) {
				return true
			}
		}
	}
	return false
}

// mayHave reports whether the system parameters include a number of devices.
func (e Experiment) mayHave(devices int) bool {
	return slices.ContainsFunc(e.System, func(f Factor) bool {
		return f.Name == train.SettingDevices && slices.Contains(f.Values, float64(devices))
	})
}

// namesEpochs reports whether a text of the job depends on the epochs to train.
func (e Experiment) namesEpochs() bool {
	texts := append(slices.Collect(maps.Values(e.Job.Env)), e.Job.ScriptPath)
	return slices.ContainsFunc(append(texts, e.Job.Command...), func(text string) bool {
		for name := range train.Placeholders(text) {
			if name == EpochsWord {
				return true
			}
		}
		return false
	})
}

// parse reads a value of the parameter as programs get it; false if it is none.
func (p Parameter) parse(text string) (Value, bool) {
	if p.Kind == KindChoice {
		i := slices.IndexFunc(p.Values, func(v Value) bool { return v.String() == text })
		if i < 0 {
			return Value{}, false
		}
		return p.Values[i], true
	}
	v := ParseValue(text)
	x, number := v.Float()
	whole := x == math.Trunc(x) || p.Kind != KindInt && p.Kind != KindLogInt
	return v, number && p.Low <= x && x <= p.High && whole
}
