package whatif

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/history"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
	"github.com/switchyard-dl/switchyard/services/planner/simrun"
)

func recorded() history.Live {
	node := func(id train.NodeID, devices ...train.DeviceID) train.Node {
		n := train.Node{ID: id}
		for _, d := range devices {
			n.Devices = append(n.Devices, train.Device{ID: d, Kind: train.KindGPU, Model: "h100"})
		}
		return n
	}
	return history.Live{
		Policy: "fifo", Nodes: []train.Node{node("small", "gpu:0"), node("large", "gpu:0", "gpu:1")},
		State:    plan.State{Quotas: map[string]int{"lab": 1}},
		Happened: map[train.JobID]history.Outcome{"a": {JCTSeconds: 100}, "b": {JCTSeconds: 300}},
	}
}

// The first simulation is of what happened; the others are of what differs from it.
func TestWhatIsSimulated(t *testing.T) {
	budget := 300.0
	for name, c := range map[string]struct {
		question Question
		policies string
		devices  int
	}{
		"nothing else":          {Question{}, "fifo", 3},
		"the same policy":       {Question{Policies: []string{"fifo"}}, "fifo", 3},
		"another policy":        {Question{Policies: []string{"fifo", "srtf"}}, "fifo srtf", 3},
		"more nodes":            {Question{AddNodes: 2}, "fifo fifo", 7},
		"more small nodes":      {Question{AddNodes: 2, Like: "small"}, "fifo fifo", 5},
		"another cluster":       {Question{Clusters: []string{"nodes=2,gpus=4"}}, "fifo fifo", 8},
		"no quotas":             {Question{Quotas: map[string]int{}}, "fifo fifo", 3},
		"a budget and a policy": {Question{PowerBudgetWatts: &budget, Policies: []string{"srtf"}}, "fifo srtf", 3},
	} {
		all, err := c.question.Plan(recorded())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var policies []string
		for _, s := range all {
			policies = append(policies, s.Policy.Name())
			if s.IntervalSeconds != 2 { // a hundredth of 200 s
				t.Errorf("%s: decisions every %v s", name, s.IntervalSeconds)
			}
		}
		devices := 0
		last := all[len(all)-1]
		for _, n := range last.Nodes {
			devices += len(n.Devices)
		}
		if got := strings.Join(policies, " "); got != c.policies || devices != c.devices || all[0].State.Quotas["lab"] != 1 {
			t.Errorf("%s: policies %s, %d devices, first with quotas %v", name, got, devices, all[0].State.Quotas)
		}
		if c.question.Quotas != nil && len(last.State.Quotas) > 0 || c.question.PowerBudgetWatts != nil && last.State.PowerBudgetWatts != budget {
			t.Errorf("%s: simulated with %v and %v W", name, last.State.Quotas, last.State.PowerBudgetWatts)
		}
	}
}

// TestNodesOfAnotherClusterAreLikeARecordedOne: jobs that ask for cores, memory or labels run there as they did.
func TestNodesOfAnotherClusterAreLikeARecordedOne(t *testing.T) {
	live := recorded()
	for i := range live.Nodes {
		n := &live.Nodes[i]
		n.Machine, n.Cores, n.Memory, n.Labels = "lab1", 64, 512*unit.GiB, map[string]string{"zone": "b"}
	}
	live.State.Quotas = nil
	spec := train.Spec{Name: "a", Cores: 8, MainMemoryMiB: 1024, NodeLabels: map[string]string{"zone": "b"}, Device: train.KindGPU}.WithDefaults()
	live.Workload = sim.Workload{Name: "w", Jobs: []sim.Arrival{{Name: "a", Source: &sim.Recorded{Spec: spec, Priority: 50, RunSeconds: 100}}}}
	all, err := Question{Clusters: []string{"nodes=2,gpus=4"}}.Plan(live)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		done, err := simrun.All(t.Context(), []sim.Config{c}, nil)
		if err != nil || len(done[0].Result.JCTs) != 1 {
			t.Errorf("on %+v: %+v, %v", c.Nodes, done, err)
		}
	}
	if n := all[1].Nodes[1]; n.ID != "node-00001" || n.Machine != "" || n.Cores != 64 || len(n.Devices) != 4 {
		t.Errorf("node %+v", n)
	}
}

func TestWrongQuestionsAreRefused(t *testing.T) {
	infinite := math.Inf(1)
	for words, q := range map[string]Question{
		"no such policy":             {Policies: []string{"best"}},
		"no such node":               {AddNodes: 1, Like: "gone"},
		"--add-nodes -1":             {AddNodes: -1},
		"--cluster":                  {Clusters: []string{"nodes=0"}},
		"want 50ms or more":          {IntervalSeconds: 0.01},
		"--quota lab=-1":             {Quotas: map[string]int{"lab": -1}},
		"--power-budget-watts +Inf":  {PowerBudgetWatts: &infinite},
		"--interval -1s: want 50ms":  {IntervalSeconds: -1},
		"--add-nodes 10001: want 0 ": {AddNodes: 10_001},
	} {
		var r *Refusal
		if _, err := q.Plan(recorded()); !errors.As(err, &r) || !r.Usage || !strings.Contains(r.Message, words) {
			t.Errorf("%+v: %v, want %q", q, err, words)
		}
	}
	live := recorded()
	live.Policy = "unheard-of"
	var r *Refusal
	if _, err := (Question{}).Plan(live); !errors.As(err, &r) || r.Usage || !strings.Contains(r.Message, "does not have") {
		t.Errorf("an unknown policy decided: %v", err)
	}
}

// A question about a cluster that cannot be made is refused: the planner must survive it.
func TestClustersThatCannotBeMade(t *testing.T) {
	large, bare := recorded(), recorded()
	for i := range bare.Nodes {
		bare.Nodes[i].Devices = nil
	}
	for _, tc := range []struct {
		live     history.Live
		clusters []string
		usage    bool
		words    string
	}{
		{bare, []string{"nodes=2,gpus=4"}, false, "no recorded node has a device"},
		{large, []string{"nodes=1000,gpus=1000", "nodes=1,gpus=1"}, true, "at most 1000000 GPUs together"},
	} {
		_, err := Question{Clusters: tc.clusters}.Plan(tc.live)
		var r *Refusal
		if !errors.As(err, &r) || r.Usage != tc.usage || !strings.Contains(r.Message, tc.words) {
			t.Errorf("%v: %v, want %s", tc.clusters, err, tc.words)
		}
	}
}
