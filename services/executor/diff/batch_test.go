package diff

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestTheBatchFollowsThePlan: an attempt that keeps its devices follows the batch of a newer plan, and is not asked to
// leave. A fixed batch stays, whatever a plan says.
func TestTheBatchFollowsThePlan(t *testing.T) {
	device := []train.DeviceID{"gpu:0", "gpu:1"}
	fixed := train.Spec{BatchSize: 32, GlobalBatchSize: 100}
	adaptive := fixed
	adaptive.AdaptiveBatch = &train.AdaptiveBatchSpec{Max: 400, MaxPerDevice: 64}
	larger := train.Batch{LocalBatch: 64, Accumulation: 1}
	for _, c := range []struct {
		name    string
		spec    train.Spec
		planned train.Batch
		want    train.Batch
	}{
		{"per device", train.Spec{BatchSize: 32}, larger, train.Batch{}},
		{"fixed", fixed, larger, train.Batch{Samples: 100, LocalBatch: 25, Accumulation: 1}},
		{"adaptive, not planned", adaptive, train.Batch{}, train.Batch{Samples: 100, LocalBatch: 50}},
		{"adaptive", adaptive, larger, larger},
	} {
		s := State{
			Realm: Realm{Realm: train.Realm{Machine: "n"}, Nodes: map[train.NodeID]train.Node{"n": {}}}, Planned: true,
			Plan:     train.Plan{Generation: 1, Allocations: []train.Allocation{{Job: "a", Node: "n", Devices: device}}},
			Jobs:     map[train.JobID]train.Job{"a": {ID: "a", Spec: c.spec, State: train.StateQueued}},
			Attempts: map[train.JobID]train.Attempt{},
		}
		started := Actions(s, Limits{})
		if len(started) != 1 || started[0].Kind != Start || started[0].Batch != c.spec.BatchIn(s.Plan.Allocations[0]) {
			t.Fatalf("%s: %+v", c.name, started)
		}
		a := train.Attempt{Job: "a", Number: 1, Backend: train.BackendLocal, Phase: train.PhaseRunning, Generation: 1, BatchGeneration: 1, Batch: started[0].Batch}
		a.SetPlaces(started[0].Places)
		s.Attempts["a"] = a
		s.Plan.Generation, s.Plan.Allocations[0].Batch = 2, c.planned
		got := Actions(s, Limits{})
		if c.want == a.Batch && len(got) == 0 {
			continue
		}
		if len(got) != 1 || got[0].Kind != Rebatch || got[0].Batch != c.want || got[0].Generation != 2 {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
