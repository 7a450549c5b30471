package launch

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestAStepOnOtherDevices: a trial on other devices than it was submitted with makes the same steps, and its
// environment has the number of devices it got, not the number that was wanted.
func TestAStepOnOtherDevices(t *testing.T) {
	spec := train.Spec{BatchSize: 32}
	setting := train.Setting{Generation: 1, BatchDevices: 2, Values: map[string]float64{train.SettingDevices: 4}}
	for devices, batch := range map[int]string{1: "64", 2: "32", 4: "16"} {
		a := train.Attempt{Node: "n", Setting: setting}
		place := Place{Node: train.Node{ID: "n"}}
		for i := range devices {
			d := gpu(string(rune('0'+i)), 16, train.EnforcedByAdvice)
			a.Devices, place.Devices = append(a.Devices, d.ID), append(place.Devices, d)
		}
		env := Setting{Spec: Tuned(spec, a), Attempt: a, Places: []Place{place}}.Scheduler(0)
		if env["SWITCHYARD_DEVICE_COUNT"] != env["NUM_GPUS"] || env["SWITCHYARD_GLOBAL_BATCH"] != "" {
			t.Errorf("on %d devices: %v", devices, env)
		}
		if env["BATCH_SIZE"] != batch || env["SWITCHYARD_PARAM_DEVICES"] != env["NUM_GPUS"] {
			t.Errorf("on %d devices: BATCH_SIZE=%s, SWITCHYARD_PARAM_DEVICES=%s", devices, env["BATCH_SIZE"], env["SWITCHYARD_PARAM_DEVICES"])
		}
	}
	if got := Tuned(spec, train.Attempt{Node: "n", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}).BatchSize; got != 32 {
		t.Errorf("no trial, and each of its devices has %d samples", got)
	}
}

// TestAProcessKnowsItsShare: with several processes on nodes of different sizes each learns which of the devices that
// share out the step are its own.
func TestAProcessKnowsItsShare(t *testing.T) {
	spec := train.Spec{BatchSize: 32, GlobalBatchSize: 64, AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 256, LearningRate: train.RateSqrt}}
	a := train.Attempt{BatchGeneration: 7, Batch: train.Batch{Samples: 100, LocalBatch: 17, Accumulation: 1}}
	s := Setting{Attempt: a, Places: []Place{
		{Node: train.Node{ID: "n"}, Devices: make([]train.Device, 2)}, {Node: train.Node{ID: "m"}, Devices: make([]train.Device, 1)},
	}}
	s.Spec = Tuned(spec, a)
	for rank, before := range []string{"0", "2"} {
		env := s.Scheduler(rank)
		for name, want := range map[string]string{
			"SWITCHYARD_DEVICE_RANK": before, "SWITCHYARD_DEVICE_COUNT": "3", "BATCH_SIZE": "17", "SWITCHYARD_GLOBAL_BATCH": "100",
			"SWITCHYARD_ACCUMULATION": "2", "SWITCHYARD_BASE_BATCH": "64", "SWITCHYARD_LEARNING_RATE": "sqrt", "SWITCHYARD_BATCH_GENERATION": "7",
		} {
			if env[name] != want {
				t.Errorf("rank %d: %s=%q, want %q", rank, name, env[name], want)
			}
		}
	}
}
