package traces

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

func TestSplit(t *testing.T) {
	l := plan.Limits{BaseBatch: 128, MaxBatch: 4096, MinLocal: 32, MaxLocal: 1024}
	for _, c := range []struct {
		batch, devices int
		want           train.Batch
	}{
		{128, 1, train.Batch{LocalBatch: 128}},
		{129, 1, train.Batch{LocalBatch: 65, Accumulation: 1}},
		{2048, 6, train.Batch{LocalBatch: 342}},
		{4096, 2, train.Batch{LocalBatch: 1024, Accumulation: 1}},
		{4096, 3, train.Batch{LocalBatch: 682, Accumulation: 1}}, // 683 on each would be more than the largest batch
		{4096, 4, train.Batch{LocalBatch: 1024}},
	} {
		if got := split(c.batch, c.devices, l); got != c.want {
			t.Errorf("%d samples on %d devices: %+v, want %+v", c.batch, c.devices, got, c.want)
		}
	}
}

func TestSmallestRotation(t *testing.T) {
	for want, shape := range map[string][]int{"234": {4, 2, 3}, "1": {1}, "1214": {1, 2, 1, 4}, "12": {2, 1}, "22": {2, 2}, "132": {3, 2, 1}} {
		if got := smallestRotation(shape); got != want {
			t.Errorf("%v: %s, want %s", shape, got, want)
		}
	}
}

func TestStepTimesBetweenAndBeyondMeasurements(t *testing.T) {
	s, err := ParseStepTimes("x", []byte("placement,local_bsz,step_time,sync_time\n1,10,1,0\n1,20,3,1\n12,10,5,2\n"),
		[]byte("local_bsz,num_nodes,num_replicas,step_time,sync_time\n10,6,6,7,3\n10,6,12,9,4\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		shape []int
		batch int
		want  StepTime
	}{
		{"measured", []int{1}, 10, StepTime{1, 0}},
		{"between two batches", []int{1}, 15, StepTime{2, 0.5}},
		{"beyond the largest", []int{1}, 40, StepTime{3, 1}},
		{"rotated", []int{2, 1}, 10, StepTime{5, 2}},
		{"nearest number of nodes, between two numbers of devices", []int{2, 2, 2, 1, 1, 1, 0}, 10, StepTime{8, 3.5}},
	} {
		if d := cmp.Diff(c.want, s.At(c.shape, c.batch), cmpopts.EquateApprox(1e-12, 0)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// TestMeshIsExactForLinearFunctions: inside a tetrahedron, and on its border, linear interpolation gives back a
// linear function.
func TestMeshIsExactForLinearFunctions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Float64Range(-10, 10)
		a, b, c, d := number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "c"), number.Draw(t, "d")
		f := func(x [3]float64) float64 { return a*x[0] + b*x[1] + c*x[2] + d }
		corners := [][3]float64{{1, 1, 10}, {8, 2, 20}, {2, 30, 40}, {3, 4, 500}}
		m := mesh{cells: [][4]int{{0, 1, 2, 3}}}
		for _, x := range corners {
			m.points = append(m.points, point{x[0], x[1], x[2], StepTime{f(x), 2 * f(x)}})
		}
		var x [3]float64
		weights, sum := [4]float64{}, 0.0
		for i := range weights {
			weights[i] = rapid.Float64Range(0.001, 1).Draw(t, "weight")
			sum += weights[i]
		}
		for i, w := range weights {
			for k := range x {
				x[k] += w / sum * corners[i][k]
			}
		}
		got, ok := m.at(x)
		if !ok || math.Abs(got.Step-f(x)) > 1e-6 || math.Abs(got.Sync-2*f(x)) > 1e-6 {
			t.Fatalf("at %v: %+v (%v), want %g", x, got, ok, f(x))
		}
		if _, ok := m.at([3]float64{100, 100, 100}); ok {
			t.Fatal("a point far outside is in the tetrahedron")
		}
	})
}

func TestWorkloadsThatAreRefused(t *testing.T) {
	const header = "name,time,application,num_replicas,batch_size\n"
	for name, text := range map[string]string{
		"empty": "", "a column is missing": "name,time\na,1\n", "no number": header + "a,x,bert,1,12\n", "twice": header + "a,1,bert,1,12\na,2,bert,1,12\n",
		"no devices": header + "a,1,bert,0,12\n", "before the start": header + "a,-1,bert,1,12\n", "no name": header + ",1,bert,1,12\n",
		"no job": header, "no time": header + "a,NaN,bert,1,12\n", "never": header + "a,inf,bert,1,12\n", "after the end of time": header + "a,1e300,bert,1,12\n",
		"too many devices": header + "a,1,bert,9223372036854775808,12\n", "too large a batch": header + "a,1,bert,1,1e12\n",
	} {
		if w, err := ParseWorkload("w", []byte(text)); err == nil {
			t.Errorf("%s: taken as %+v", name, w)
		}
	}
}

func TestUnionRenamesAndMerges(t *testing.T) {
	a, b := Workload{Jobs: []Arrival{{Name: "x", Seconds: 5}}}, Workload{Jobs: []Arrival{{Name: "x", Seconds: 3}, {Name: "y", Seconds: 9}}}
	var names []train.JobID
	for _, j := range Union("u", a, b).Jobs {
		names = append(names, j.Name)
	}
	if d := cmp.Diff([]train.JobID{"w2-x", "w1-x", "w2-y"}, names); d != "" {
		t.Error(d)
	}
	if one := Union("u", a); one.Jobs[0].Name != "x" {
		t.Errorf("a single workload was renamed: %v", one.Jobs)
	}
}

func TestMeanFlowServesTheShortestFirst(t *testing.T) {
	// The long one starts, waits from 1 to 2 for the short one, and ends at 5.
	if got := meanFlow([]flow{{0, 4}, {1, 1}}); got != (5.+1)/2 {
		t.Errorf("mean flow time %g, want 3", got)
	}
}
