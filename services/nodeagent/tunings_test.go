package nodeagent

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestWhoseMicroBatchIsWanted(t *testing.T) {
	wanted := &tunings{wanted: map[string]train.Tuning{}}
	key := train.TuningKey("n1", "gpu:1")
	record := train.Tuning{Node: "n1", Device: "gpu:1", Generation: 5, Tenants: []train.TunedTenant{
		{Job: "j", Attempt: 2, MicroBatch: 8, Accumulation: 2}, {Job: "fixed", Attempt: 1},
	}}
	wanted.see(bus.Entry[train.Tuning]{Key: key, Value: record}, false)
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
	wanted.see(bus.Entry[train.Tuning]{Key: key}, true)
	if _, _, tuned := wanted.of(on("j", 2, "gpu:1")); tuned {
		t.Error("a wish that was withdrawn stands")
	}
}
