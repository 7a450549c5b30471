package traces

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/lab/baselines"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// smallTraces are two applications. A step of bert takes 0.1 s and 0.01 s for each sample of the local batch, and
// 0.05 s more on several devices; cifar10 is faster. Every step counts as one step at the base batch; an epoch is
// 1000 of them.
func smallTraces() fstest.MapFS {
	traces := fstest.MapFS{}
	addSmall(traces, "bert", 12, 384, 1)
	addSmall(traces, "cifar10", 128, 4096, 0.02)
	return traces
}

// addSmall adds an application by its smallest and largest batch.
func addSmall(traces fstest.MapFS, app string, base, largest int, factor float64) {
	placements, scalability := "placement,local_bsz,step_time,sync_time\n", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
	batches := []int{1, 64, 1024}
	for _, shape := range shapes(4, 4) {
		for _, b := range batches {
			step, sync := smallStep(shape, b)
			placements += fmt.Sprintf("%s,%d,%g,%g\n", smallestRotation(shape), b, factor*step, factor*sync)
		}
	}
	for nodes := 6; nodes <= 16; nodes += 2 {
		for _, b := range batches {
			step, sync := smallStep([]int{1, 1}, b)
			scalability += fmt.Sprintf("%d,%d,%d,%g,%g\n", nodes, 4*nodes, b, factor*step, factor*sync)
		}
	}
	traces["traces/"+app+"/placements.csv"] = &fstest.MapFile{Data: []byte(placements)}
	traces["traces/"+app+"/scalability.csv"] = &fstest.MapFile{Data: []byte(scalability)}
	for _, size := range []int{base, largest} {
		rows := "progress,iteration,metric,grad_sqr,grad_var\n"
		for epoch := 1; epoch <= 100; epoch++ {
			rows += fmt.Sprintf("%d,%d,0.5,1,0\n", 1000*epoch, 1000*epoch*base/size)
		}
		traces[fmt.Sprintf("traces/%s/validation-%d.csv", app, size)] = &fstest.MapFile{Data: []byte(rows)}
	}
}

func smallStep(shape []int, batch int) (step, sync float64) {
	if len(shape) > 1 || shape[0] > 1 {
		sync = 0.05
	}
	return 0.1 + 0.01*float64(batch) + sync, sync
}

// shapes are all placements within a number of nodes and of devices on each, up to rotation.
func shapes(nodes, devices int) [][]int {
	seen := map[string][]int{}
	var grow func(shape []int)
	grow = func(shape []int) {
		if len(shape) > 0 {
			seen[smallestRotation(shape)] = slices.Clone(shape)
		}
		if len(shape) == nodes {
			return
		}
		for n := 1; n <= devices; n++ {
			grow(append(slices.Clone(shape), n))
		}
	}
	grow(nil)
	var all [][]int
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		all = append(all, seen[key])
	}
	return all
}

func smallApplications(t testing.TB) map[string]*Application {
	t.Helper()
	apps, err := Load(smallTraces(), "traces", "derived")
	if err != nil {
		t.Fatal(err)
	}
	return apps
}

func arrivals(t testing.TB, rows ...string) Workload {
	t.Helper()
	w, err := ParseWorkload("small", []byte("name,time,application,num_replicas,batch_size\n"+strings.Join(rows, "\n")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestCompletionTimesByHand(t *testing.T) {
	for name, c := range map[string]struct {
		rows         []string
		pools        []sim.Pool
		interference float64
		rules        Rules
		want         map[string]float64
		restarts     int
	}{
		// Placed at 60, runs from 90 on; 2 epochs of 1000 steps of 0.22 s.
		"one job": {rows: []string{"a,30,bert,1,12"}, pools: []sim.Pool{{Nodes: 1, Devices: 4}}, want: map[string]float64{"a": 60 + 30 + 440 - 30}},
		// 24 samples on one device: more than the base batch takes two passes of 12: 0.44 s a step.
		"accumulation": {rows: []string{"a,60,bert,1,24"}, pools: []sim.Pool{{Nodes: 1, Devices: 4}}, want: map[string]float64{"a": 30 + 880}},
		// 6 samples on each of 2 devices: 0.21 s.
		"two devices": {rows: []string{"a,60,bert,2,12"}, pools: []sim.Pool{{Nodes: 1, Devices: 4}}, want: map[string]float64{"a": 30 + 420}},
		// The second waits for the first to end at 530 and is placed at 540.
		"waiting": {rows: []string{"a,30,bert,1,12", "b,40,bert,1,12"}, pools: []sim.Pool{{Nodes: 1, Devices: 1}}, want: map[string]float64{"a": 500, "b": 540 + 30 + 440 - 40}},
		// Two gangs of 3 share the middle one of three nodes of 2: each loses half of its speed while both run.
		"interference": {
			rows: []string{"a,60,bert,3,12", "b,60,bert,3,12"}, pools: []sim.Pool{{Nodes: 3, Devices: 2}}, interference: 0.5,
			want: map[string]float64{"a": 30 + 2*1000*0.19/0.5, "b": 30 + 2*1000*0.19/0.5},
		},
		// With prices by application a start of bert costs 120 s and a step takes 1.2 times as long.
		"prices by application": {
			rows: []string{"a,60,bert,1,12"}, pools: []sim.Pool{{Nodes: 1, Devices: 4}}, rules: TypedRules(), want: map[string]float64{"a": 120 + 528},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules := c.rules
			if rules == (Rules{}) {
				rules = UntypedRules()
			}
			r, err := Run(Config{
				Applications: smallApplications(t), Workload: arrivals(t, c.rows...), Pools: c.pools, Policy: baselines.Tiresias{}, Rules: rules, Interference: c.interference,
			})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, r.JCTs, cmpopts.EquateApprox(0, 1)); d != "" {
				t.Errorf("completion times (-want +got):\n%s", d)
			}
			if r.Restarts != c.restarts || r.Completed != len(c.rows) {
				t.Errorf("%d restarts and %d completed, want %d and %d", r.Restarts, r.Completed, c.restarts, len(c.rows))
			}
		})
	}
}

func TestFiguresByHand(t *testing.T) {
	r, err := Run(Config{
		Applications: smallApplications(t), Workload: arrivals(t, "a,60,bert,1,12", "b,60,bert,1,12"), Pools: []sim.Pool{{Nodes: 1, Devices: 4}},
		Policy: baselines.Tiresias{}, Rules: UntypedRules(),
	})
	if err != nil {
		t.Fatal(err)
	}
	// Both take 470 s and end at 530; 2 of 4 devices are busy from 60 on. Alone, on half of the cluster, a job takes
	// 30 + 420 s.
	want := sim.Result{
		Policy: "tiresias", Workload: "small", Jobs: 2, Completed: 2, AvgJCTSeconds: 470, P50JCTSeconds: 470, P99JCTSeconds: 470, MakespanSeconds: 530,
		GPUUtilisation: 2. * 470 / (4 * 530), WorstFinishTimeFairness: 470. / 450, JCTs: map[string]float64{"a": 470, "b": 470}, Starts: map[string]int{"a": 1, "b": 1},
	}
	if d := cmp.Diff(want, r, cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Errorf("result (-want +got):\n%s", d)
	}
}

// mixedWorkload is a busy hour.
func mixedWorkload(t testing.TB) Workload {
	var rows []string
	for i := range 24 {
		app, batch := "bert", 48
		if i%3 == 0 {
			app, batch = "cifar10", 256
		}
		rows = append(rows, fmt.Sprintf("%s-%d,%d,%s,%d,%d", app, i, 137*i, app, 1+i%7, batch))
	}
	return arrivals(t, rows...)
}

// TestEveryPolicyCompletesEveryJob runs each policy twice: all jobs end, no sooner on average than the lower bound,
// and the same again.
func TestEveryPolicyCompletesEveryJob(t *testing.T) {
	apps := smallApplications(t)
	for _, name := range baselines.Names() {
		t.Run(name, func(t *testing.T) {
			policy, err := baselines.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			c := Config{Applications: apps, Workload: mixedWorkload(t), Pools: []sim.Pool{{Nodes: 3, Devices: 4}}, Policy: policy, Rules: UntypedRules(), Seed: 7}
			first, err := Run(c)
			if err != nil {
				t.Fatal(err)
			}
			if first.Completed != first.Jobs {
				t.Errorf("%d of %d jobs completed", first.Completed, first.Jobs)
			}
			bounds, err := LowerBounds(c)
			if err != nil {
				t.Fatal(err)
			}
			if first.AvgJCTSeconds < bounds.Best() {
				t.Errorf("average completion time %.0f s, and nothing can be faster than %.0f s", first.AvgJCTSeconds, bounds.Best())
			}
			again, err := Run(c)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(first, again); d != "" {
				t.Errorf("the same run gives another result:\n%s", d)
			}
		})
	}
}

// TestNobodyStarves: whatever jobs come, as long as each of them could run alone, all of them end.
func TestNobodyStarves(t *testing.T) {
	apps := smallApplications(t)
	for _, name := range baselines.Names() {
		if name == "pollux" {
			continue // a search takes too long for many runs; TestEveryPolicyCompletesEveryJob has one of it
		}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				policy, err := baselines.Find(name)
				if err != nil {
					rt.Fatal(err)
				}
				var rows []string
				for i := range rapid.IntRange(1, 10).Draw(rt, "jobs") {
					rows = append(rows, fmt.Sprintf("j%d,%d,bert,%d,48", i, rapid.IntRange(0, 2000).Draw(rt, "time"), rapid.IntRange(1, 8).Draw(rt, "devices")))
				}
				r, err := Run(Config{Applications: apps, Workload: arrivals(t, rows...), Pools: []sim.Pool{{Nodes: 2, Devices: 4}}, Policy: policy, Rules: UntypedRules()})
				if err != nil || r.Completed != r.Jobs {
					rt.Fatalf("%d of %d jobs completed: %v", r.Completed, r.Jobs, err)
				}
			})
		})
	}
}

// TestOnlyOraclesReadTheFuture changes all that a trace says about epochs that nobody has reached by some moment: up
// to that moment, every decision of a policy without an oracle must be the same.
func TestOnlyOraclesReadTheFuture(t *testing.T) {
	const moment = 1500.0
	oracles := []string{"optimus", "srtf"}
	for _, name := range baselines.Names() {
		if slices.Contains(oracles, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			policy, err := baselines.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			c := Config{
				Applications: smallApplications(t), Workload: mixedWorkload(t), Pools: []sim.Pool{{Nodes: 3, Devices: 4}}, Policy: policy, Rules: UntypedRules(), Seed: 7,
			}
			reached := map[string]int{}
			whole, err := Run(c)
			if err != nil {
				t.Fatal(err)
			}
			before := decisionsUntil(t, c, moment, reached)
			if reached["cifar10"] < 1 || reached["cifar10"] >= 99 {
				t.Fatalf("cifar10 has reached epoch %d: the test shows nothing", reached["cifar10"])
			}
			for app, a := range c.Applications {
				forge(&a.Training, reached[app]+1)
			}
			after := decisionsUntil(t, c, moment, map[string]int{})
			if !slices.Equal(before, after) {
				t.Error("the future has changed, and with it the decisions before it")
			}
			if forged, err := Run(c); err != nil || forged.AvgJCTSeconds <= whole.AvgJCTSeconds {
				t.Errorf("the future has changed, and the completion times have not: %v", err)
			}
		})
	}
}

// decisionsUntil are the decisions up to a moment, as text, and the epochs that the applications have reached by then.
func decisionsUntil(t *testing.T, c Config, moment float64, reached map[string]int) []string {
	t.Helper()
	var decisions []string
	c.Decide = func(s plan.State, p plan.Policy) train.Plan {
		for _, j := range s.Jobs {
			reached[j.Spec.Name] = max(reached[j.Spec.Name], j.EpochsDone)
		}
		made := plan.Decide(s, p)
		words := s.Now.Format(time.TimeOnly)
		for _, a := range made.Allocations {
			words += fmt.Sprint(" ", a.Job, a.Places(), a.Batch)
		}
		decisions = append(decisions, words)
		return made
	}
	c.Watch = func(now sim.Tick) bool { return now.Seconds < moment }
	if _, err := Run(c); err != nil {
		t.Fatal(err)
	}
	return decisions
}

// forge makes each epoch from one on (from 0) twice as long and far noisier.
func forge(t *Training, from int) {
	for i := range t.runs {
		r := &t.runs[i]
		for e := from; e < len(r.progress); e++ {
			more := 1000 * float64(e-from+1)
			r.progress[e] += more
			r.iteration[e] += more
			r.variance[e] = 50
		}
	}
	for e := from + 1; e < len(t.ends); e++ {
		t.ends[e] += 1000 * float64(e-from)
	}
}
