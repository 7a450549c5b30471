package sim

import (
	"math"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

func away(node train.NodeID, device train.DeviceID, from, until float64) Absence {
	return Absence{Node: node, Device: device, FromSeconds: from, UntilSeconds: until}
}

func TestAJobOnALostNodeGoesOnFromItsLastEpoch(t *testing.T) {
	c := live(plan.FIFO{}, liveNodes(1, 1), Arrival{Name: "a", Source: recorded(4, 1, 10)})
	// Nobody says on which of the nodes it runs first: both are gone, one after the other.
	c.Absences = []Absence{away("lab0", "gpu:0", 25, math.Inf(1)), away("lab1", "gpu:0", math.Inf(-1), 25)}
	got, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	// It starts at 0.5 s; two epochs and 4.5 s of the third until the node is lost at 25 s; then two epochs on the
	// other one.
	if got.Starts["a"] != 2 || math.Abs(got.JCTs["a"]-45) > 1e-9 {
		t.Errorf("%d starts, completion time %v s", got.Starts["a"], got.JCTs["a"])
	}
	if want := 44.5 / 45; math.Abs(got.GPUUtilisation-want) > 1e-9 {
		t.Errorf("utilisation %v, want %v: one device at a time", got.GPUUtilisation, want)
	}
}

func TestAnOpaqueJobOnALostNodeBeginsAnew(t *testing.T) {
	opaque := &Recorded{Spec: train.Spec{Name: "o", BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 9}.WithDefaults(), Priority: 10, RunSeconds: 30}
	c := live(plan.FIFO{}, liveNodes(1), Arrival{Name: "o", Source: opaque})
	// So long that a run which does not know of the node to come would end.
	c.Absences = []Absence{away("lab0", "gpu:0", 20, 2000)}
	got, err := Run(c)
	if err != nil || math.Abs(got.JCTs["o"]-2030) > 1e-9 {
		t.Errorf("completion time %v s: %v", got.JCTs["o"], err)
	}
}

func TestADeviceThatIsGoneIsLeftAtTheEpochsEnd(t *testing.T) {
	for name, policy := range plan.Policies() {
		c := live(policy, liveNodes(2), Arrival{Name: "a", Source: recorded(3, 1, 10)})
		c.Absences = []Absence{away("lab0", "gpu:0", 5, math.Inf(1))}
		seen := 0
		c.Decide = func(s plan.State, p plan.Policy) train.Plan {
			if at := s.Now.Sub(at(0)).Seconds(); at >= 5 && len(s.Nodes[0].Devices) != 1 || at < 5 && len(s.Nodes[0].Devices) != 2 {
				t.Fatalf("%s: at %v s the policy is shown %d devices", name, at, len(s.Nodes[0].Devices))
			}
			seen++
			return plan.Decide(s, p)
		}
		got, err := Run(c)
		if err != nil || seen == 0 {
			t.Fatal(seen, err)
		}
		if got.Completed != 1 || got.Starts["a"] != 2 || math.Abs(got.JCTs["a"]-30.5) > 0.51 {
			t.Errorf("%s: %d starts, completion time %v s", name, got.Starts["a"], got.JCTs["a"])
		}
	}
}
