package state

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestMeasured: an attempt has shown how fast it is after an epoch. Code that can stop after any step has shown it as
// soon as the model of its job has a step time on as many devices and nodes.
func TestMeasured(t *testing.T) {
	on := func(workers, nodes int) *train.Model {
		return &train.Model{Speed: train.Speed{Measured: []train.Measured{{Config: train.Config{Workers: workers, Nodes: nodes, LocalBatch: 8}, StepSeconds: 1}}}}
	}
	holding := Holding{Node: "n", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}
	for _, c := range []struct {
		name    string
		running *Running
		model   *train.Model
		want    bool
	}{
		{"nothing runs", nil, on(2, 1), false},
		{"an epoch", &Running{Holding: holding, Epochs: 1}, nil, true},
		{"a trial of micro-batches", &Running{Holding: holding, Epochs: 1, Tuned: true}, nil, false},
		{"steps of code that ends its epochs", &Running{Holding: holding, NextSaveSeconds: 9}, on(2, 1), false},
		{"steps in the model", &Running{Holding: holding, AnyStep: true, NextSaveSeconds: 1}, on(2, 1), true},
		{"no step yet", &Running{Holding: holding, AnyStep: true}, on(2, 1), false},
		{"another size in the model", &Running{Holding: holding, AnyStep: true, NextSaveSeconds: 1}, on(1, 1), false},
		{"more nodes in the model", &Running{Holding: holding, AnyStep: true, NextSaveSeconds: 1}, on(2, 2), false},
		{"no model", &Running{Holding: holding, AnyStep: true, NextSaveSeconds: 1}, nil, false},
	} {
		if got := (&Job{Running: c.running, Model: c.model}).Measured(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
