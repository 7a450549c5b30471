package policy

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// TestSwitchyardPaysForComingBack: what a restart takes off an option, for a job that has never run, for one that was
// preempted and for one that runs.
func TestSwitchyardPaysForComingBack(t *testing.T) {
	held := cluster.Placement{Parts: []cluster.Part{{Count: 1}}}
	for _, c := range []struct {
		what          string
		ran           float64
		held          cluster.Placement
		stays         bool
		left, restart float64
		quiet, want   float64
	}{
		{"has never run", 0, cluster.Placement{}, false, 1000, 45, 0, 1},
		{"was preempted", 600, cluster.Placement{}, false, 1000, 45, 0, 0.95},
		{"was preempted close to its end", 600, cluster.Placement{}, false, 10, 45, 0, 0.95},
		{"was preempted, a long restart", 600, cluster.Placement{}, false, 1000, 500, 0, 0.75},
		{"was preempted, a long restart, nobody comes", 600, cluster.Placement{}, false, 1000, 500, 2500, 0.9},
		{"would move", 600, held, false, 1000, 45, 0, 0.9},
		{"would move, nobody comes any more", 600, held, false, 1000, 45, 1e6, 1 - 1./15},
		{"would move close to its end", 600, held, false, 15, 45, 0, 0.25},
		{"would move close to its end, nobody comes any more", 600, held, false, 15, 45, 1e6, 0.25},
		{"stays", 600, held, true, 1000, 45, 0, 1},
	} {
		job := &cluster.Gang{Job: &state.Job{DeviceSeconds: c.ran, Model: &train.Model{StartSeconds: c.restart}}, Held: c.held}
		m := &allocation{Round: &Round{Snapshot: &cluster.Snapshot{}}, quiet: c.quiet}
		if got := m.spared(&candidate{gang: job}, &option{held: c.stays, left: c.left}); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("a job that %s counts %.3f of its speed-up, want %.3f", c.what, got, c.want)
		}
	}
}

// TestTheKnapsackIsWorthMost: on small clusters no other combination of options is worth more than the one that the
// knapsack finds in a pool, and none of the pools gives more than it has.
func TestTheKnapsackIsWorthMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &allocation{}
		for range rapid.IntRange(1, 2).Draw(t, "pools") {
			m.pools = append(m.pools, pool{free: rapid.IntRange(1, 6).Draw(t, "free")})
		}
		for range rapid.IntRange(1, 4).Draw(t, "jobs") {
			b := &candidate{}
			for range rapid.IntRange(0, 4).Draw(t, "options") {
				b.options = append(b.options, option{
					pool: rapid.IntRange(0, len(m.pools)-1).Draw(t, "pool"), devices: rapid.IntRange(1, 6).Draw(t, "devices"),
					value: rapid.Float64Range(0.1, 9).Draw(t, "value"),
				})
			}
			m.jobs = append(m.jobs, b)
		}
		m.refine()
		used, worth := make([]int, len(m.pools)), 0.0
		for _, b := range m.jobs {
			if b.chosen != nil {
				used[b.chosen.pool] += b.chosen.devices
				worth += b.chosen.value
			}
		}
		for k, p := range m.pools {
			if used[k] > p.free {
				t.Fatalf("%d devices of pool %d given, there are %d", used[k], k, p.free)
			}
		}
		if best := mostWorth(m, 0, make([]int, len(m.pools))); len(m.pools) == 1 && worth < best-1e-9 {
			t.Fatalf("worth %g, the best is %g", worth, best)
		}
	})
}

// mostWorth tries all combinations of options of the jobs from one on.
func mostWorth(m *allocation, job int, used []int) float64 {
	if job == len(m.jobs) {
		return 0
	}
	best := mostWorth(m, job+1, used)
	for _, o := range m.jobs[job].options {
		if used[o.pool]+o.devices > m.pools[o.pool].free {
			continue
		}
		used[o.pool] += o.devices
		best = max(best, o.value+mostWorth(m, job+1, used))
		used[o.pool] -= o.devices
	}
	return best
}

// TestSwitchyardTriesLargerBatches: a batch that is not much worse by the fit, and larger than all that have run, is
// tried, but not one beyond twice as large; once it was as slow as the fit said, the batch goes back.
func TestSwitchyardTriesLargerBatches(t *testing.T) {
	job := state.Job{
		Spec:  train.Spec{BatchSize: 64, AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 1024, MinPerDevice: 8, MaxPerDevice: 256}},
		Model: &train.Model{Efficiency: &train.Efficiency{Variance: 1.5, Square: 1, BaseBatch: 64}},
	}
	l := &throughput{}
	gang := &cluster.Gang{Job: &job}
	best := func(local int, seconds float64) int {
		l.add(train.Ran{Config: train.Config{Workers: 4, Nodes: 1, LocalBatch: local}, StepSeconds: seconds, SyncSeconds: 0.1})
		l.fit(curve.DevicePrior{})
		c := newSpeedCurve(gang, "")
		c.correct(l)
		c.tried = l.largest()
		_, b := c.best(gang, 4, 1)
		return b.LocalBatch
	}
	tried := best(16, 1)
	if tried <= 16 || tried > 32 {
		t.Errorf("16 on a device has run: next %d, want more, and at most 32", tried)
	}
	if again := best(tried, 1.1*float64(tried)/16); again >= tried {
		t.Errorf("%d was slow, and it goes on with %d", tried, again)
	}
}

// TestSwitchyardKnowsFasterDevices: one signature has run on two models of device; of another that has run on the first
// alone it is expected that the second is as much faster.
func TestSwitchyardKnowsFasterDevices(t *testing.T) {
	b := &knowledge{Profiles: map[string]*profile{}, curves: map[curveKey]*speedCurve{}}
	spec := train.Spec{BatchSize: 16, AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 64, MinPerDevice: 16, MaxPerDevice: 64}}
	learn := func(signature, model string, seconds float64) {
		b.learn(&cluster.Gang{Signature: signature, Job: &state.Job{
			Spec: spec, Model: &train.Model{Ran: []train.Ran{{Device: model, Config: train.Config{Workers: 1, Nodes: 1, LocalBatch: 16}, StepSeconds: seconds}}},
		}})
	}
	stranger := &cluster.Gang{Signature: "new", Job: &state.Job{Spec: spec}}
	learn("new", "slow", 1)
	faster := func() float64 {
		clear(b.curves)
		for _, l := range b.Profiles["new"].Models {
			l.fit(curve.DevicePrior{})
		}
		batch := train.Batch{LocalBatch: 16}
		return b.curve(stranger, "slow").seconds(1, 1, batch) / b.curve(stranger, "fast").seconds(1, 1, batch)
	}
	if got := faster(); got != 1 {
		t.Errorf("nobody has run on both: the second is %.2f times as fast, want 1", got)
	}
	for i := range 8 {
		learn(fmt.Sprint("old", i), "slow", 1)
		learn(fmt.Sprint("old", i), "fast", 0.25)
	}
	if got := faster(); got < 3 || got > 4.1 {
		t.Errorf("eight kinds of job are 4 times as fast on the second, this one is expected to be %.2f times", got)
	}
}

// TestALaterStepTimeReplacesAnEarlierOne: what was measured first may have been a warm-up.
func TestALaterStepTimeReplacesAnEarlierOne(t *testing.T) {
	on := train.Config{Workers: 2, Nodes: 1, LocalBatch: 32}
	var l throughput
	for _, seconds := range []float64{2, 1, 1.05} { // the last differs too little to be worth another fit
		l.add(train.Ran{Config: on, StepSeconds: seconds})
	}
	if len(l.Samples) != 1 || l.Samples[0].StepSeconds != 1 {
		t.Errorf("kept %+v, want one sample of 1 s", l.Samples)
	}
}
