package file

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Other devices while a trial runs: the job asks for the first number, and has to allow for all of them.
func TestDevicesThatAreTunedWhileTrialsRun(t *testing.T) {
	of := func(change func(*Experiment)) Experiment {
		e := Experiment{
			Name: "e", Mode: PipeTune, Job: train.Spec{Command: []string{"train"}, BatchSize: 32},
			System: []contract.Factor{{Name: Devices, Values: []float64{2, 1, 4}}},
		}
		change(&e)
		return e
	}
	batch := func(values ...float64) contract.Parameter {
		p := contract.Parameter{Name: "batch_size", Kind: search.Choice}
		for _, v := range values {
			p.Values = append(p.Values, contract.Number(v))
		}
		return p
	}
	for _, test := range []struct {
		name, field string
		e           Experiment
	}{
		{"nothing is in the way", "", of(func(e *Experiment) { e.Job.MinDevices, e.Job.MaxDevices = 1, 4 })},
		{"more at least", "min_devices", of(func(e *Experiment) { e.Job.MinDevices = 2 })},
		{"fewer at most", "max_devices", of(func(e *Experiment) { e.Job.MaxDevices = 2 })},
		{"one", "single_device", of(func(e *Experiment) { e.Job.SingleDevice = true })},
		{"no strategy", "strategy", of(func(e *Experiment) { e.Job.Strategy = train.StrategyNone })},
		{"a batch that cannot be split", "batch_size", of(func(e *Experiment) { e.Job.BatchSize = 5 })},
		{"one of several batches", "batch_size", of(func(e *Experiment) { e.Space = search.Space{batch(32, 7)} })},
		{"batches that can", "", of(func(e *Experiment) { e.Job.BatchSize, e.Space = 5, search.Space{batch(32, 64)} })},
		{"it is told how many", "command[1]", of(func(e *Experiment) { e.Job.Command = []string{"train", "-n=${devices}"} })},
		{"v2 submits each", "", of(func(e *Experiment) { e.Mode, e.Job.MinDevices = V2, 2 })},
		{"one value", "", of(func(e *Experiment) { e.System[0].Values, e.Job.MinDevices = []float64{1}, 2 })},
		{"they are fixed", "", of(func(e *Experiment) { e.System[0].Fixed, e.Job.MinDevices = true, 2 })},
	} {
		if field, wrong := test.e.FrozenDevices(); field != test.field || (field == "") != (wrong == "") {
			t.Errorf("%s: %q, %s", test.name, field, wrong)
		}
	}
	for mode, want := range map[contract.ExperimentMode]int{PipeTune: 2, V2: 4} {
		e := of(func(e *Experiment) { e.Mode = mode })
		if job := e.TrialJob(0, 9, nil, map[string]float64{Devices: 4}); job.MinDevices != want || job.MaxDevices != want {
			t.Errorf("%s: submitted with %d to %d devices, want %d", mode, job.MinDevices, job.MaxDevices, want)
		}
	}
}
