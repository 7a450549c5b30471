package nodeagent

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestWhoseMicroBatchIsWanted(t *testing.T) {
	trials := newTrialSettings()
	wanted := newTunings(trials, time.Now)
	key := train.TuningKey("n1", "gpu:1")
	record := train.Tuning{Node: "n1", Device: "gpu:1", Generation: 5, Tenants: []train.TunedJob{
		{Job: "j", Attempt: 2, MicroBatch: 8, Accumulation: 2}, {Job: "fixed", Attempt: 1},
	}}
	wanted.onTuning(bus.Entry[train.Tuning]{Key: key, Value: record}, false)
	on := func(job train.JobID, number int, devices ...train.DeviceID) train.Attempt {
		return train.Attempt{Job: job, Number: number, Node: "n1", Devices: devices}
	}
	got, generation, tuned := wanted.of(on("j", 2, "gpu:1"))
	if !tuned || generation != 5 || got.MicroBatch != 8 || got.Accumulation != 2 {
		t.Errorf("%+v in generation %d, %t", got, generation, tuned)
	}
	for what, a := range map[string]train.Attempt{
		"an earlier attempt":              on("j", 1, "gpu:1"),
		"another device":                  on("j", 2, "gpu:0"),
		"several devices":                 on("j", 2, "gpu:1", "gpu:0"),
		"a job that cannot change its":    on("fixed", 1, "gpu:1"),
		"a job that is not on the device": on("other", 1, "gpu:1"),
	} {
		if got, _, tuned := wanted.of(a); tuned {
			t.Errorf("%s is wanted to run with %+v", what, got)
		}
	}
	// A trial has its own, on any number of devices; a micro-batch larger than a step is ignored.
	setting := train.Setting{Job: "j", Generation: 3, BatchSize: 10, Values: map[string]float64{"micro_batch": 4}}
	trials.onSetting(bus.Entry[train.Setting]{Key: "j", Value: setting}, false)
	got, generation, tuned = wanted.of(on("j", 2, "gpu:1", "gpu:0"))
	if !tuned || generation != 3 || got.MicroBatch != 4 || got.Accumulation != 3 {
		t.Errorf("a trial: %+v in generation %d, %t", got, generation, tuned)
	}
	setting.Values = map[string]float64{"micro_batch": 11}
	trials.onSetting(bus.Entry[train.Setting]{Key: "j", Value: setting}, false)
	if got, generation, _ = wanted.of(on("j", 2, "gpu:1")); generation != 5 || got.MicroBatch != 8 {
		t.Errorf("without one it has %+v in generation %d", got, generation)
	}
	wanted.onTuning(bus.Entry[train.Tuning]{Key: key}, true)
	if _, _, tuned := wanted.of(on("j", 2, "gpu:1")); tuned {
		t.Error("a withdrawn setting stands")
	}
}

// The planner's clock may be wrong: what counts is when this agent saw a change.
func TestSinceWhenMicroBatchesAreUnchanged(t *testing.T) {
	at := func(minutes int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(minutes) * time.Minute) }
	var now time.Time
	wanted := newTunings(newTrialSettings(), func() time.Time { return now })
	tune := func(minute int, device train.DeviceID, generation uint64, settled string) {
		now = at(minute)
		record := train.Tuning{Generation: generation, Since: at(1000), Settled: train.Reason{Code: settled}}
		wanted.onTuning(bus.Entry[train.Tuning]{Key: train.TuningKey("n1", device), Value: record}, false)
	}
	tune(0, "gpu:0", 1, "")
	tune(1, "gpu:0", 1, "Tuned")
	tune(2, "gpu:1", 1, "Tuned")
	tune(3, "gpu:1", 2, "Tuned")
	tune(4, "gpu:2", 3, "")
	tune(5, "gpu:0", 1, "Tuned") // unchanged
	for _, c := range []struct {
		devices []train.DeviceID
		want    time.Time
	}{
		{[]train.DeviceID{"gpu:0"}, at(1)},
		{[]train.DeviceID{"gpu:1", "gpu:0"}, at(3)},
		{[]train.DeviceID{"gpu:2", "gpu:0"}, at(9)}, // being tried
		{[]train.DeviceID{"gpu:3"}, time.Time{}},
	} {
		if got := wanted.since(train.Attempt{Node: "n1", Devices: c.devices}, at(9)); !got.Equal(c.want) {
			t.Errorf("on %v since %v, want %v", c.devices, got, c.want)
		}
	}
}
