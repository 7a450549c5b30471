package fit

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestBatchRefusals(t *testing.T) {
	change := func(f func(*train.Spec)) func(*train.Spec, *Identity, *Inventory, *Paths) {
		return func(s *train.Spec, _ *Identity, _ *Inventory, _ *Paths) { f(s) }
	}
	run(t, []refusal{
		{"a step larger than an epoch", change(func(s *train.Spec) { s.GlobalBatchSize = 60001 }), []string{
			"BatchTooLarge global_batch_size: want at most training_set_size 60000, found 60001 (an epoch needs at least one full step)",
		}},
		{"a negative step", change(func(s *train.Spec) { s.GlobalBatchSize = -1 }), []string{
			"OutOfRange global_batch_size: want at least 0, found -1 (the number of samples per optimizer step)",
		}},
		{"a step on each device and in all", change(func(s *train.Spec) { s.GlobalBatchSize, s.BatchPerDevice = 128, true }), []string{
			"Contradiction batch_per_device: it keeps batch_size on every device, but global_batch_size is given (leave one of them out)",
		}},
		{"fewer samples than devices", change(func(s *train.Spec) { s.BatchSize, s.MaxDevices = 1, 2 }), []string{
			"BatchTooSmall max_devices: a step of 1 samples cannot be shared out to 2 devices (allow fewer devices, give a larger global_batch_size, or set batch_per_device)",
		}},
		{"parameter servers", change(func(s *train.Spec) { s.GlobalBatchSize, s.Strategy = 128, train.StrategyParameterServer }), []string{
			"NotSupported global_batch_size: workers of parameter servers take batch_size samples each (leave it out, or use strategy all_reduce)",
		}},
		{"adaptive without room", change(func(s *train.Spec) {
			s.AdaptiveBatch = &train.AdaptiveBatchSpec{Max: 63, MaxPerDevice: 32, LearningRate: "square"}
		}), []string{
			"OutOfRange adaptive_batch.max: want at least 64, found 63 (the largest number of samples per optimizer step; the smallest is global_batch_size, or batch_size times min_devices)",
			"Contradiction adaptive_batch.max_per_device: want at least batch_size 64, found 32 (leave it out, or lower batch_size)",
			`UnknownValue adaptive_batch.learning_rate: want adascale, sqrt, linear or none, found "square"`,
		}},
		{"adaptive with shares that no device can have", change(func(s *train.Spec) {
			s.AdaptiveBatch = &train.AdaptiveBatchSpec{Max: 512, MinPerDevice: 65, MaxPerDeviceOn: map[string]int{"T4": -1}}
		}), []string{
			"OutOfRange adaptive_batch.min_per_device: want at most 64, found 65 (the least number of samples per device and pass; the largest is max_per_device, or batch_size)",
			`OutOfRange adaptive_batch.max_per_device_on["T4"]: want at least 65, found -1 (the largest number of samples per device and pass on this model of device; the smallest is min_per_device)`,
		}},
		{"adaptive with fewer samples than devices", change(func(s *train.Spec) {
			s.BatchSize, s.MaxDevices, s.AdaptiveBatch = 4, 9, &train.AdaptiveBatchSpec{Max: 8}
		}), []string{
			"BatchTooSmall adaptive_batch: a step of 8 samples cannot be shared out to 9 devices (allow fewer devices, give a larger global_batch_size, or set batch_per_device)",
		}},
		{"adaptive from output", change(func(s *train.Spec) {
			s.AdaptiveBatch, s.LogFormat = &train.AdaptiveBatchSpec{Max: 128}, train.LogBigDL
		}), []string{
			"NotSupported adaptive_batch: a program whose output is read cannot be asked to change its batch (leave it out, or let the code call the job API)",
		}},
	}, false)
}

// TestElasticJobsKeepTheirBatch: the steps of an elastic job are those on its fewest devices, unless it says otherwise.
func TestElasticJobsKeepTheirBatch(t *testing.T) {
	adaptive := &train.AdaptiveBatchSpec{Max: 512}
	for _, c := range []struct {
		name string
		spec train.Spec
		want int
	}{
		{"one device", train.Spec{}, 0},
		{"a fixed gang", train.Spec{MinDevices: 2, MaxDevices: 2}, 0},
		{"elastic", train.Spec{MinDevices: 2, MaxDevices: 4}, 128},
		{"elastic, named", train.Spec{MaxDevices: 4, GlobalBatchSize: 100}, 100},
		{"elastic, per device", train.Spec{MaxDevices: 4, BatchPerDevice: true}, 0},
		{"parameter servers", train.Spec{MaxDevices: 4, Strategy: train.StrategyParameterServer}, 0},
		{"adaptive", train.Spec{AdaptiveBatch: adaptive}, 64},
		{"adaptive, more devices than samples of the first step", train.Spec{MaxDevices: 500, AdaptiveBatch: adaptive}, 64},
	} {
		spec := good()
		spec.MinDevices, spec.MaxDevices, spec.Strategy = c.spec.MinDevices, c.spec.MaxDevices, c.spec.Strategy
		spec.GlobalBatchSize, spec.BatchPerDevice, spec.AdaptiveBatch = c.spec.GlobalBatchSize, c.spec.BatchPerDevice, c.spec.AdaptiveBatch
		v := Check(spec, ann(), Inventory{}, goodPaths())
		if v.Spec.GlobalBatchSize != c.want {
			t.Errorf("%s: a step has %d samples, want %d (%s)", c.name, v.Spec.GlobalBatchSize, c.want, v.Message())
		}
		if a := v.Spec.AdaptiveBatch; a != nil {
			if diff := cmp.Diff(&train.AdaptiveBatchSpec{Max: 512, MaxPerDevice: 64, LearningRate: train.RateAdaScale}, a); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
		}
	}
}
