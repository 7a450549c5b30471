package sim

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// shared is a recorded job that may share a device and needs some GiB of it.
func shared(name string, gib int64, epochs int, seconds float64) *Recorded {
	r := recorded(epochs, 1, seconds)
	r.Spec.Name, r.Spec.Command = name, []string{name}
	r.Spec.AllowSharing, r.Spec.EstimatedMemoryMiB = true, gib<<10
	return r
}

// lab is a cluster of nodes whose GPUs have 16 GiB, and on which jobs beside another job run at some rate.
func labOf(rate float64, nodes []train.Node, jobs ...Arrival) Config {
	for i := range nodes {
		for d := range nodes[i].Devices {
			nodes[i].Devices[d].Memory, nodes[i].Devices[d].Units = 16*unit.GiB, 16
		}
	}
	c := live(plan.FIFO{}, nodes, jobs...)
	known := curve.NewInterference("", nil)
	for range 20 {
		for _, x := range jobs {
			for _, y := range jobs {
				kind := func(a Arrival) curve.Kind { return curve.KindOf(a.Source.(*Recorded).Spec) }
				known.Measured(kind(x), []curve.Kind{kind(y)}, rate)
			}
		}
	}
	c.State.Interference = map[string]*curve.Interference{curve.InterferenceKey(&nodes[0].Devices[0]): known}
	return c
}

// Two jobs share one GPU where both may, and each then runs at the rate that is predicted beside the other.
func TestJobsShareADeviceAtThePredictedRate(t *testing.T) {
	jcts := func(may bool, rate float64) map[string]float64 {
		var jobs []Arrival
		for i := range 2 {
			r := shared(fmt.Sprint("program", i), 4, 10, 10)
			r.Spec.AllowSharing = may
			jobs = append(jobs, Arrival{Name: train.JobID(fmt.Sprint("j", i)), Source: r})
		}
		c := labOf(rate, liveNodes(1), jobs...)
		c.Decide = func(s plan.State, p plan.Policy) train.Plan {
			for _, j := range s.Jobs {
				if j.Running != nil && may && (j.Running.Memory != 4*unit.GiB || j.Planned == nil || j.Planned.Memory != j.Running.Memory) {
					t.Errorf("the state shows %s with %+v, planned %+v", j.ID, j.Running.Holding, j.Planned)
				}
			}
			return plan.Decide(s, p)
		}
		got, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if got.GPUUtilisation > 1 {
			t.Errorf("the one device was in use %v of the time", got.GPUUtilisation)
		}
		return got.JCTs
	}
	for i, want := range []map[string]float64{{"j0": 100.5, "j1": 200.5}, {"j0": 125.5, "j1": 125.5}, {"j0": 143.36, "j1": 143.36}} {
		got := jcts(i > 0, []float64{1, 0.8, 0.7}[i])
		if diff := cmp.Diff(want, got, cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) < 1 })); diff != "" {
			t.Errorf("case %d: %s", i, diff)
		}
	}
}

// No run puts more on a device than an executor would start there, whatever jobs share, and every job comes to its end.
func TestNoDeviceHoldsMoreThanItsMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []Arrival
		for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
			r := shared(fmt.Sprint("program", i%3), rapid.Int64Range(1, 12).Draw(t, "GiB"), rapid.IntRange(1, 4).Draw(t, "epochs"), 5)
			r.Spec.AllowSharing = rapid.Bool().Draw(t, "shares")
			r.Spec.MaxDevices = rapid.IntRange(1, 2).Draw(t, "devices")
			jobs = append(jobs, Arrival{Name: train.JobID(fmt.Sprint("j", i)), Seconds: float64(rapid.IntRange(0, 20).Draw(t, "arrives")), Source: r})
		}
		c := labOf(rapid.Float64Range(0.3, 1).Draw(t, "rate"), liveNodes(2), jobs...)
		c.Policy, _ = plan.Find(rapid.SampledFrom(plan.PolicyNames()).Draw(t, "policy"))
		c.Decide = func(s plan.State, p plan.Policy) train.Plan {
			whole, parts := map[train.DeviceID]int{}, map[train.DeviceID]unit.Bytes{}
			for _, j := range s.Jobs {
				if j.Running == nil {
					continue
				}
				for _, d := range j.Running.Devices {
					if parts[d] += j.Running.Memory; j.Running.Memory == 0 {
						whole[d]++
					}
				}
			}
			for _, d := range s.Nodes[0].Devices {
				if whole[d.ID] > 1 || whole[d.ID] == 1 && parts[d.ID] > 0 || parts[d.ID] > d.Memory {
					t.Fatalf("%s is held whole by %d jobs, and in parts of %v", d.ID, whole[d.ID], parts[d.ID])
				}
			}
			return plan.Decide(s, p)
		}
		got, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if got.Completed != len(jobs) {
			t.Errorf("%d of %d jobs completed", got.Completed, len(jobs))
		}
	})
}
