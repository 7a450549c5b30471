package sim

import (
	"fmt"
	"math"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// liveNodes are nodes by their number of devices.
func liveNodes(sizes ...int) []train.Node {
	var nodes []train.Node
	for i, size := range sizes {
		n := train.Node{ID: train.NodeID(fmt.Sprintf("lab%d", i))}
		for d := range size {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU, Model: "h100"})
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// recorded is a job whose epochs were seen to take the given seconds on 1, 2, .. devices.
func recorded(epochs, most int, seconds ...float64) *Recorded {
	r := &Recorded{
		Spec:     train.Spec{Name: "x", BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: epochs, MinDevices: 1, MaxDevices: most}.WithDefaults(),
		Priority: train.DefaultPriority, Epochs: epochs,
	}
	for i, s := range seconds {
		r.Seen = append(r.Seen, RecordedEpoch{Device: "h100", EpochRecord: curve.EpochRecord{
			Epoch: i + 1, Seconds: s, Config: train.Config{Workers: i + 1, Nodes: 1, LocalBatch: 10}, Steps: 100 / (i + 1),
		}})
	}
	return r
}

func live(policy plan.Policy, nodes []train.Node, jobs ...Arrival) Config {
	return Config{Workload: Workload{Name: "live", Jobs: jobs}, Nodes: nodes, Policy: policy, IntervalSeconds: 0.5}
}

func TestARecordedJobTakesWhatItTook(t *testing.T) {
	r := recorded(4, 1, 3)
	r.StartSeconds = 1.25
	// The third epoch was slow.
	r.Seen = append(r.Seen, RecordedEpoch{Device: "h100", EpochRecord: curve.EpochRecord{Epoch: 3, Seconds: 5, Config: r.Seen[0].Config, Steps: 100}})
	got, err := Run(live(plan.FIFO{}, liveNodes(1), Arrival{Name: "a", Seconds: 2, Source: r}))
	if err != nil {
		t.Fatal(err)
	}
	// Decided at 2.0 s; 1.25 s to start, epochs of 3, 4 (the mean), 5 and 4 s.
	if jct := got.JCTs["a"]; math.Abs(jct-17.25) > 1e-9 {
		t.Errorf("completion time %v s, want 17.25", jct)
	}
}

// A job of a group trains with the batch that it was recorded with: nobody chooses one in a simulation.
func TestAJobOfAGroupRuns(t *testing.T) {
	r := recorded(2, 1, 3)
	r.Spec.Energy = &train.EnergySpec{Group: "nightly"}
	got, err := Run(live(plan.FIFO{}, liveNodes(1), Arrival{Name: "a", Source: r}))
	if err != nil || got.Completed != 1 {
		t.Errorf("%+v, error %v", got, err)
	}
}

func TestAnOpaqueJobRunsAsLongAsItRanAndIsNeverMoved(t *testing.T) {
	opaque := &Recorded{Spec: train.Spec{Name: "o", BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 9}.WithDefaults(), Priority: 10, RunSeconds: 30}
	urgent := recorded(2, 1, 5)
	urgent.Priority = 90
	got, err := Run(live(plan.Optimus{}, liveNodes(1),
		Arrival{Name: "opaque", Source: opaque}, Arrival{Name: "urgent", Seconds: 10, Source: urgent}))
	if err != nil {
		t.Fatal(err)
	}
	if got.Starts["opaque"] != 1 || math.Abs(got.JCTs["opaque"]-30.5) > 1e-9 {
		t.Errorf("the opaque job was started %d times and took %v s", got.Starts["opaque"], got.JCTs["opaque"])
	}
	if got.JCTs["urgent"] < 30 {
		t.Errorf("the urgent job took %v s: it did not wait for the device", got.JCTs["urgent"])
	}
}

// The policy knows what has run in the simulation, and nothing of what was recorded.
func TestAPolicyLearnsRecordedJobsWhileTheyRun(t *testing.T) {
	r := recorded(6, 2, 8, 4)
	epochs := map[int]int{}
	c := live(plan.Optimus{}, liveNodes(2), Arrival{Name: "a", Source: r})
	c.Decide = func(s plan.State, p plan.Policy) train.Plan {
		for _, j := range s.Jobs {
			seen := 0
			if j.Model != nil {
				seen = j.Model.EpochsSeen
			}
			if seen != j.EpochsDone {
				t.Errorf("after %d epochs the policy knows of %d", j.EpochsDone, seen)
			}
			epochs[j.EpochsDone]++
		}
		return plan.Decide(s, p)
	}
	got, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(epochs) != 6 {
		t.Errorf("decisions by epochs done: %v", epochs)
	}
	if got.Completed != 1 || got.JCTs["a"] > 6*8 {
		t.Errorf("%d completed, in %v s: the second device was of no use", got.Completed, got.JCTs["a"])
	}
}

func TestMoreNodesShortenAQueue(t *testing.T) {
	var jobs []Arrival
	for i := range 6 {
		id := train.JobID(fmt.Sprintf("j%d", i))
		jobs = append(jobs, Arrival{Name: id, Seconds: float64(i), Source: recorded(3, 2, 10, 6)})
	}
	for name, policy := range plan.Policies() {
		few, err := Run(live(policy, liveNodes(2), jobs...))
		if err != nil {
			t.Fatal(err)
		}
		many, err := Run(live(policy, liveNodes(2, 2, 2), jobs...))
		if err != nil {
			t.Fatal(err)
		}
		if few.Completed != 6 || many.Completed != 6 || many.AvgJCTSeconds >= few.AvgJCTSeconds || many.MakespanSeconds >= few.MakespanSeconds {
			t.Errorf("%s: one node %v s on average, three %v s", name, few.AvgJCTSeconds, many.AvgJCTSeconds)
		}
		again, err := Run(live(policy, liveNodes(2), jobs...))
		if err != nil || again.AvgJCTSeconds != few.AvgJCTSeconds {
			t.Errorf("%s: %v s and then %v s (error %v)", name, few.AvgJCTSeconds, again.AvgJCTSeconds, err)
		}
	}
}

func TestAJobLeavesAtItsEpochsEnd(t *testing.T) {
	low, urgent := recorded(3, 1, 10), recorded(2, 1, 5)
	low.StartSeconds, urgent.Priority = 1, 90
	got, err := Run(live(plan.Optimus{}, liveNodes(1),
		Arrival{Name: "low", Source: low}, Arrival{Name: "urgent", Seconds: 14, Source: urgent}))
	if err != nil {
		t.Fatal(err)
	}
	// low begins at 0.5 s and ends its second epoch at 21.5 s. The urgent one takes its place until 31.5 s; then low
	// starts again, 1 s, and trains 10 s.
	if got.Starts["low"] != 2 || math.Abs(got.JCTs["urgent"]-17.5) > 0.51 || math.Abs(got.JCTs["low"]-42.5) > 1.01 {
		t.Errorf("completion times %v, starts %v", got.JCTs, got.Starts)
	}
}

func TestNoDeviceOfALiveClusterIsHeldTwice(t *testing.T) {
	var jobs []Arrival
	for i := range 12 {
		id := train.JobID(fmt.Sprintf("j%02d", i))
		r := recorded(2+i%4, 1+i%3, 7, 4, 3)
		r.Priority, r.StartSeconds = 10*(i%5), 0.7
		jobs = append(jobs, Arrival{Name: id, Seconds: float64(3 * i), Source: r})
	}
	for name, policy := range plan.Policies() {
		moves := 0
		c := live(policy, liveNodes(3, 2), jobs...)
		c.Decide = func(s plan.State, p plan.Policy) train.Plan {
			holder := map[deviceID]train.JobID{}
			for _, j := range s.Jobs {
				if j.Running == nil {
					continue
				}
				if j.Running.StopPending {
					moves++
				}
				for _, d := range j.Running.Devices {
					on := deviceID{j.Running.Node, d}
					if other, twice := holder[on]; twice {
						t.Fatalf("%s: %s and %s hold %v", name, j.ID, other, on)
					}
					holder[on] = j.ID
				}
			}
			return plan.Decide(s, p)
		}
		got, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if got.Completed != len(jobs) || moves == 0 {
			t.Errorf("%s: %d of %d completed, %d times a job was about to leave", name, got.Completed, len(jobs), moves)
		}
	}
}

func TestARunEndsWhereNothingCanHappenAnyMore(t *testing.T) {
	wide := recorded(2, 4, 5)
	wide.Spec.MinDevices = 4
	got, err := Run(live(plan.FIFO{}, liveNodes(2),
		Arrival{Name: "wide", Source: wide}, Arrival{Name: "small", Source: recorded(2, 1, 5)}))
	if err != nil {
		t.Fatal(err)
	}
	if _, done := got.JCTs["wide"]; done || got.Jobs != 2 {
		t.Errorf("%+v", got)
	}
}

func TestBackgroundJobsDoNotHoldUpTheEnd(t *testing.T) {
	ticks := 0
	c := live(plan.FIFO{}, liveNodes(2),
		Arrival{Name: "endless", Source: recorded(1000, 1, 50), Background: true}, Arrival{Name: "small", Source: recorded(2, 1, 5)})
	c.Watch = func(Tick) bool { ticks++; return true }
	got, err := Run(c)
	if err != nil || got.Completed != 1 || ticks > 30 {
		t.Errorf("%d completed after %d ticks: %v", got.Completed, ticks, err)
	}
}

// BenchmarkRecorded is a day of 300 jobs of 200 epochs on 16 nodes of 4 devices.
func BenchmarkRecorded(b *testing.B) {
	var jobs []Arrival
	for i := range 300 {
		id := train.JobID(fmt.Sprintf("j%03d", i))
		jobs = append(jobs, Arrival{Name: id, Seconds: float64(288 * i), Source: recorded(200, 1+i%4, 60, 35, 25, 20)})
	}
	sizes := make([]int, 16)
	for i := range sizes {
		sizes[i] = 4
	}
	for b.Loop() {
		c := live(plan.Optimus{}, liveNodes(sizes...), jobs...)
		c.IntervalSeconds = 30
		if got, err := Run(c); err != nil || got.Completed != len(jobs) {
			b.Fatalf("%d completed: %v", got.Completed, err)
		}
	}
}

// A planner knows how often plans made a job leave within the last hour, live and simulated: the bound on restarts
// holds for both.
func TestARecordedJobKnowsItsRecentRestarts(t *testing.T) {
	c := live(plan.FIFO{}, liveNodes(2), Arrival{Name: "a", Source: recorded(8, 1, 900)})
	c.IntervalSeconds = 10
	most := 0
	c.Decide = func(s plan.State, p plan.Policy) train.Plan {
		decided := plan.Decide(s, p)
		// Wherever it is, it is to leave.
		j, device := s.Jobs[0], train.DeviceID("gpu:0")
		if j.Running != nil && j.Running.Devices[0] == device {
			device = "gpu:1"
		}
		decided.Allocations[0].Devices = []train.DeviceID{device}
		most = max(most, j.RecentRestarts)
		return decided
	}
	got, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	// Seven restarts, a quarter of an hour and a little apart: four at most are within an hour.
	if got.Restarts != 7 || most != 4 {
		t.Errorf("%d restarts, and at most %d were told of; want 7 and 4", got.Restarts, most)
	}
}

// As the profiler does, a simulation lends a job the step times of others of its family, also of those that still run.
func TestARecordedJobStartsWithWhatItsKindTaught(t *testing.T) {
	known := map[string]bool{}
	job := func(name string, arrives float64, command string) Arrival {
		r := recorded(2, 1, 10)
		r.Spec.Command = []string{command}
		return Arrival{Name: train.JobID(name), Seconds: arrives, Source: r}
	}
	c := live(plan.Switchyard{}, liveNodes(3), job("first", 0, "train"), job("early", 0, "train"), job("later", 15, "train"), job("other", 15, "another"))
	c.Decide = func(s plan.State, p plan.Policy) train.Plan {
		for _, j := range s.Jobs {
			if _, met := known[string(j.ID)]; !met {
				known[string(j.ID)] = j.Model != nil && j.Model.Speed.StepSeconds(train.Config{Workers: 1, Nodes: 1, LocalBatch: 10}) == 0.1 && j.Model.EpochsSeen == 0
			}
		}
		return plan.Decide(s, p)
	}
	if _, err := Run(c); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"first": false, "early": false, "later": true, "other": false} {
		if known[name] != want {
			t.Errorf("the speed of %s was known when it came: %v, want %v", name, known[name], want)
		}
	}
}
