package train

import "testing"

// TestTheStepIsSharedOut: passes hold at most the largest batch per device, and all of them make the step.
func TestTheStepIsSharedOut(t *testing.T) {
	for _, c := range []struct {
		name    string
		spec    Spec
		devices int
		want    Batch
		global  int
	}{
		{"per device", Spec{BatchSize: 64}, 4, Batch{LocalBatch: 64}, 256},
		{"the fewest devices", Spec{BatchSize: 64, GlobalBatchSize: 64}, 1, Batch{Samples: 64, LocalBatch: 64}, 64},
		{"four devices", Spec{BatchSize: 64, GlobalBatchSize: 64}, 4, Batch{Samples: 64, LocalBatch: 16}, 64},
		{"three do not divide it", Spec{BatchSize: 64, GlobalBatchSize: 64}, 3, Batch{Samples: 64, LocalBatch: 22}, 64},
		{"accumulated", Spec{BatchSize: 64, GlobalBatchSize: 1000}, 2, Batch{Samples: 1000, LocalBatch: 63, Accumulation: 7}, 1000},
		{"larger passes", Spec{BatchSize: 64, GlobalBatchSize: 1000, AdaptiveBatch: &AdaptiveBatchSpec{MaxPerDevice: 500}}, 2, Batch{Samples: 1000, LocalBatch: 500}, 1000},
		{"more devices than samples", Spec{BatchSize: 20, GlobalBatchSize: 20, AdaptiveBatch: &AdaptiveBatchSpec{Max: 640}}, 24, Batch{Samples: 24, LocalBatch: 1}, 24},
	} {
		if got := c.spec.Batch(c.devices); got != c.want || got.Global(c.devices) != c.global {
			t.Errorf("%s: %+v, a step of %d samples; want %+v and %d", c.name, got, got.Global(c.devices), c.want, c.global)
		}
	}
}
