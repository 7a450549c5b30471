package sim

import (
	"testing"

	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// TestEqualJobsAreServedInTurn: of two jobs that need as long, the second one has nothing to gain from the first
// one's device. No prediction is so exact that they could take it from each other in turns and win.
func TestEqualJobsAreServedInTurn(t *testing.T) {
	for _, later := range []float64{1, 5, 15} {
		got, err := Run(live(plan.Switchyard{}, liveNodes(1),
			Arrival{Name: "first", Source: recorded(10, 1, 3)},
			Arrival{Name: "second", Seconds: later, Source: recorded(10, 1, 3)}))
		if err != nil {
			t.Fatal(err)
		}
		if got.Starts["first"]+got.Starts["second"] != 2 {
			t.Errorf("the second one %v s later: %v starts, completion times %v s", later, got.Starts, got.JCTs)
		}
	}
}
