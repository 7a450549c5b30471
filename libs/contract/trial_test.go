package contract

import (
	"maps"
	"slices"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// An experiments service could submit any job in a person's name. Only those count that the person's experiment makes:
// no value outside of the space, and no other text.
func TestAnExperimentTriesItsOwnJobs(t *testing.T) {
	e := Experiment{
		Name: "e", Mode: ModePipeTune, Search: SearchConfig{MaxEpochs: 9},
		Job: train.Spec{Command: []string{"train", "--lr=${lr}", "--epochs", "${epochs}", "--cores", "${cores}"}, Env: map[string]string{"KIND": "${optimizer}"}, CustomDir: "/home/ann"},
		Space: []Parameter{
			{Name: "lr", Kind: KindUniform, Low: 0.1, High: 1},
			{Name: "optimizer", Kind: KindChoice, Values: []Value{Text("sgd"), Text("adam")}},
			{Name: "layers", Kind: KindInt, Low: 1, High: 4},
			{Name: "momentum", Kind: KindUniform, High: 1},
		},
		System: []Factor{{Name: train.SettingDevices, Values: []float64{1, 2}, Fixed: true}, {Name: train.SettingCores, Values: []float64{1, 2}}},
	}
	params := map[string]Value{"lr": Number(0.25), "optimizer": Text("adam"), "layers": Number(3)}
	for _, devices := range []int{0, 2} {
		if job := e.TrialJob(3, 4, params, devices); !e.Tries(3, job) || e.Tries(4, job) || job.MaxDevices != devices {
			t.Errorf("on %d devices: %+v", devices, job)
		}
	}
	for what, spoil := range map[string]func(*train.Spec){
		"another command":       func(j *train.Spec) { j.Command[0] = "rm" },
		"a further word":        func(j *train.Spec) { j.Command = append(j.Command, "; id") },
		"another lr":            func(j *train.Spec) { j.Command[1] = "--lr=0.5" },
		"too large a value":     func(j *train.Spec) { j.Env["SWITCHYARD_PARAM_LR"], j.Command[1] = "2", "--lr=2" },
		"a text for a number":   func(j *train.Spec) { j.Env["SWITCHYARD_PARAM_LR"], j.Command[1] = "$(id)", "--lr=$(id)" },
		"no whole number":       func(j *train.Spec) { j.Env["SWITCHYARD_PARAM_LAYERS"] = "2.5" },
		"none of the choices":   func(j *train.Spec) { j.Env["SWITCHYARD_PARAM_OPTIMIZER"], j.Env["KIND"] = "x", "x" },
		"too many epochs":       func(j *train.Spec) { j.Command[3] = "10" },
		"cores":                 func(j *train.Spec) { j.Command[5] = "1; id" },
		"another variable":      func(j *train.Spec) { j.Env["LD_PRELOAD"] = "/x.so" },
		"another folder":        func(j *train.Spec) { j.CustomDir = "/home/bob" },
		"an image":              func(j *train.Spec) { j.Image = "x" },
		"a number of a user":    func(j *train.Spec) { j.UID = 1001 },
		"devices that are none": func(j *train.Spec) { j.MinDevices, j.MaxDevices = 3, 3 },
	} {
		job := e.TrialJob(3, 4, params, 0)
		job.Command, job.Env = slices.Clone(job.Command), maps.Clone(job.Env)
		if spoil(&job); e.Tries(3, job) {
			t.Errorf("%s: %+v", what, job)
		}
	}
}

// A trial without a result says why. Otherwise a misspelt metric would look like a training without success.
func TestATrialWithoutAResultSaysWhy(t *testing.T) {
	bound := 1.0
	accuracy, memory := map[string]float64{"accuracy": 0.5}, map[string]float64{"memory": 0.5}
	both := map[string]float64{"accuracy": 0.5, "memory": 0.5}
	for want, test := range map[string]struct {
		per    Per
		reason string
		done   []TrialEpoch
	}{
		"":                                      {done: []TrialEpoch{{Metrics: both}}},
		"not started":                           {reason: "not started"},
		"accuracy was not reported":             {done: []TrialEpoch{{Metrics: memory}}},
		"memory was not reported":               {done: []TrialEpoch{{Metrics: accuracy}, {Metrics: accuracy}}},
		"ended early; memory was not reported":  {reason: "ended early", done: []TrialEpoch{{Metrics: accuracy}}},
		"the energy of its epochs is not known": {per: PerEnergy, done: []TrialEpoch{{Metrics: both, Seconds: 1}}},
		"the time of its epochs is not known":   {per: PerTime, done: []TrialEpoch{{Metrics: both, Joules: 1}}},
		"reported, not in the newest epoch":     {reason: "reported, not in the newest epoch", done: []TrialEpoch{{Metrics: both}, {}}},
		"a step failed; accuracy is no number":  {reason: "a step failed", done: []TrialEpoch{{Metrics: map[string]float64{NonfiniteSteps: 1}}}},
	} {
		r := ExperimentRecord{
			Experiment: Experiment{Objective: Objective{Metric: "accuracy", Per: test.per}, Constraints: []Constraint{{Metric: "memory", Max: &bound}}},
			Trials:     []Trial{{Reason: test.reason, Done: test.done}},
		}
		if got := r.Explain(&r.Trials[0]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
