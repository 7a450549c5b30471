package traces

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// TestSwitchyardIsAheadOfPollux compares with the published results: the mean over four workloads of the ratios of
// average completion times, and of the 99th percentiles and makespans. The bounds are a little above what the policy
// reaches with what jobs report: means of gradient noise and whole steps, where it once read the trace itself.
func TestSwitchyardIsAheadOfPollux(t *testing.T) {
	apps := applications(t)
	for _, c := range []struct {
		dir     string
		average float64
	}{{"workloads", 0.81}, {"workloads-0.5", 0.86}} {
		average, percentile, makespan := 0.0, 0.0, 0.0
		for number := 1; number <= 4; number++ {
			w := workload(t, c.dir, number)
			got := replay(t, apps, w, plan.Switchyard{})
			if got.Completed != len(w.Jobs) {
				t.Fatalf("%s/%s: %d of %d jobs completed", c.dir, w.Name, got.Completed, len(w.Jobs))
			}
			jcts := published(t, "pollux", c.dir, w.Name)
			var peer []float64
			sum, last := 0.0, 0.0
			for _, j := range w.Jobs {
				jct := jcts[string(j.Name)]
				peer = append(peer, jct)
				sum += jct
				last = max(last, j.Seconds+jct)
			}
			slices.Sort(peer)
			ratio := got.AvgJCTSeconds / (sum / float64(len(peer)))
			t.Logf("%s/%s: average %.0f s, %.3f of Pollux's", c.dir, w.Name, got.AvgJCTSeconds, ratio)
			average += ratio / 4
			percentile += got.P99JCTSeconds / sim.Percentile(peer, 0.99) / 4
			makespan += got.MakespanSeconds / last / 4
		}
		t.Logf("%s: average %.3f, 99th percentile %.3f, makespan %.3f of Pollux's", c.dir, average, percentile, makespan)
		if average > c.average || percentile > 1.05 || makespan > 1.05 {
			t.Errorf("%s: average %.3f, 99th percentile %.3f, makespan %.3f of Pollux's, want at most %.2f, 1.05 and 1.05",
				c.dir, average, percentile, makespan, c.average)
		}
	}
}

// TestSwitchyardOnSeveralTypes compares with Sia's average completion times and 99th percentiles on three types of
// GPU, as its published simulator gives them. The bounds are above what the policy reaches by about as much as single
// workloads move with the slightest change.
func TestSwitchyardOnSeveralTypes(t *testing.T) {
	root := filepath.Join(filepath.Dir(data(t)), "sia")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("no traces of several types: %v", err)
	}
	apps, err := Load(os.DirFS(root), "traces", "derived")
	if err != nil {
		t.Fatal(err)
	}
	pools := []sim.Pool{{Nodes: 6, Devices: 4, Model: "aws"}, {Nodes: 2, Devices: 8, Model: "dgx-ext"}, {Nodes: 3, Devices: 8, Model: "rtx"}}
	for name, hours := range map[string]struct{ average, percentile float64 }{"workload-1": {0.546, 8.5}, "workload-2": {0.766, 9.7}, "workload-3": {0.585, 4.0}} {
		content, err := os.ReadFile(filepath.Join(root, "workloads", "philly", name+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		w, err := ParseWorkload(name, content)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Run(Config{Applications: apps, Workload: w, Pools: pools, Policy: plan.Switchyard{}, Rules: TypedRules()})
		if err != nil {
			t.Fatal(err)
		}
		average, percentile := got.AvgJCTSeconds/3600/hours.average, got.P99JCTSeconds/3600/hours.percentile
		t.Logf("philly/%s: average %.0f s, %.3f of Sia's, 99th percentile %.3f of Sia's", name, got.AvgJCTSeconds, average, percentile)
		if got.Completed != len(w.Jobs) || average > 0.85 || percentile > 1.05 {
			t.Errorf("philly/%s: %d of %d jobs completed, average %.3f and 99th percentile %.3f of Sia's, want at most 0.85 and 1.05",
				name, got.Completed, len(w.Jobs), average, percentile)
		}
	}
}
