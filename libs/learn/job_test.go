package learn

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func nine() time.Time { return time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC) }

func after(seconds float64) time.Time {
	return nine().Add(time.Duration(seconds * float64(time.Second)))
}

func spec() train.Spec {
	return train.Spec{Name: "n", BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 10, MaxDevices: 2}.WithDefaults()
}

func anyModel(train.NodeID, train.DeviceID) train.Device { return train.Device{Model: "a"} }

func TestEpochsBecomeAModel(t *testing.T) {
	j := New("a", spec(), anyModel)
	j.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
	for i := 1; i <= 4; i++ {
		if !j.epochEnded(after(float64(20*i)), &event.EpochEnded{Attempt: 1, EpochsDone: i, EpochSeconds: 20, Devices: 1, Loss: new(1 / float64(i)), MemoryBytes: unit.Bytes(1000 + i)}) {
			t.Fatalf("epoch %d was not taken", i)
		}
	}
	if j.epochEnded(after(90), &event.EpochEnded{Attempt: 1, EpochsDone: 4, EpochSeconds: 99, Devices: 1}) {
		t.Fatal("an epoch was taken twice")
	}
	m := j.Model()
	if m.Job != "a" || m.EpochSeconds != 20 || m.EpochsSeen != 4 || m.Convergence == nil || m.Memory == nil {
		t.Fatalf("model %+v", m)
	}
	// An epoch of 100 steps in 20 s, without its own step time.
	if got := m.Speed.StepSeconds(j.config(j.attempt, 1, train.Batch{})); math.Abs(got-0.2) > 1e-9 {
		t.Fatalf("%v s a step, want 0.2", got)
	}
	if got := m.Memory.Bytes(10); got != 1004 {
		t.Fatalf("%d bytes, want the peak 1004", got)
	}
	r, known := j.Estimate(m)
	want := event.Reestimated{EpochsDone: 4, TotalSeconds: 200, RemainingSeconds: 120}
	r.RemainingLowSeconds, r.RemainingHighSeconds = 0, 0
	if diff := cmp.Diff(want, r); !known || diff != "" {
		t.Fatal(diff)
	}
}

// A trial on twice the devices has half the samples on each. Its epochs count for that batch and have as many steps
// as before.
func TestAnAttemptHasABatchOfItsOwn(t *testing.T) {
	j := New("a", spec(), anyModel)
	for attempt, devices := range []int{1, 2} {
		started := event.Started{Attempt: attempt + 1, Devices: []train.DeviceID{"cpu:0", "cpu:1"}[:devices]}
		if devices == 2 {
			started.BatchSize = 5
		}
		j.started(after(float64(20*attempt)), &started)
		j.epochEnded(after(float64(20*attempt+20)), &event.EpochEnded{Attempt: attempt + 1, EpochsDone: attempt + 1, EpochSeconds: 20, Devices: devices})
	}
	for i, want := range []train.Config{{Workers: 1, Nodes: 1, LocalBatch: 10}, {Workers: 2, Nodes: 1, LocalBatch: 5}} {
		if e := j.History.Epochs[i]; e.Config != want || e.Steps != 100 {
			t.Errorf("epoch %d: %+v in %d steps, want %+v in 100", i+1, e.Config, e.Steps, want)
		}
	}
}

// TestStepsOfAnUnfinishedEpochTeach: an attempt that leaves within an epoch has still shown how fast its steps are.
func TestStepsOfAnUnfinishedEpochTeach(t *testing.T) {
	j := New("a", spec(), anyModel)
	for attempt, seconds := range []float64{0.3, 0.2} {
		devices := []train.DeviceID{"cpu:0", "cpu:1"}[:attempt+1]
		j.Take(after(float64(10*attempt)), &event.Started{Attempt: attempt + 1, Devices: devices})
		j.Stepped(after(float64(10*attempt+5)), event.Stepped{Attempt: attempt + 1, Step: 10, Steps: 10, StepSeconds: seconds})
		j.Take(after(float64(10*attempt+9)), &event.Preempted{Attempt: attempt + 1})
	}
	speed := j.Model().Speed
	for workers, want := range map[int]float64{1: 0.3, 2: 0.2} {
		if got, known := speed.Observed(train.Config{Workers: workers, Nodes: 1, LocalBatch: 10}); !known || math.Abs(got.StepSeconds-want) > 1e-9 {
			t.Errorf("%d devices: %v s a step, known %v, want %v", workers, got.StepSeconds, known, want)
		}
	}
}

// TestASlowWorkerIsNamedWhereItRuns: the ranks of a gang over several nodes go through its parts.
func TestASlowWorkerIsNamedWhereItRuns(t *testing.T) {
	parts := []train.Part{{Node: "n1", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}, {Node: "n2", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}}
	for slow, want := range []train.Straggler{{Node: "n1", Device: "gpu:0"}, {Node: "n1", Device: "gpu:1"}, {Node: "n2", Device: "gpu:0"}, {Node: "n2", Device: "gpu:1"}} {
		s := spec()
		s.MinDevices, s.MaxDevices, s.Strategy, s.Launch = 4, 4, train.StrategyAllReduce, train.LaunchPerDevice
		j := New("a", s, anyModel)
		j.Take(after(0), &event.Started{Attempt: 1, Node: "n1", Devices: train.AllDevices(parts), Parts: parts})
		for rank := range 4 {
			wait := 0.5
			if rank == slow {
				wait = 0 // the others wait for it
			}
			j.Stepped(after(60), event.Stepped{Attempt: 1, Rank: rank, Steps: 50, StepSeconds: 1, WaitSeconds: wait, Devices: 4})
		}
		if found := j.Straggling(); found == nil || found.Rank != slow || found.Node != want.Node || found.Device != want.Device {
			t.Errorf("rank %d: %+v, want %s of %s", slow, found, want.Device, want.Node)
		}
	}
}

// TestAJobThatBeginsAgainHasTrainedNothing: what a training had reached is lost with its state, and what it says later
// is of no use. The speed is known still.
func TestAJobThatBeginsAgainHasTrainedNothing(t *testing.T) {
	s := spec()
	s.AdaptiveBatch, s.MaxEpochs, s.Stop = &train.AdaptiveBatchSpec{Max: 64}, 100, &train.StopSpec{LossDecrease: 0.01, Epochs: 3}
	j := New("a", s, anyModel)
	epochs := func(attempt int, numbers ...int) {
		for _, n := range numbers {
			j.Take(after(float64(1000*attempt+10*n)), &event.EpochEnded{
				Attempt: attempt, EpochsDone: n, EpochSeconds: 10, Steps: 100, Devices: 1, Loss: new(1 + 1/float64(n*n)), GradSquared: new(1.0), GradVariance: new(2.0),
			})
		}
	}
	j.Take(after(1000), &event.Started{Attempt: 1, Devices: []train.DeviceID{"gpu:0"}})
	epochs(1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	c := j.Converged()
	if c == nil {
		t.Fatal("the loss has not converged")
	}
	j.Take(after(1500), c)
	j.Take(after(1500), &event.AttemptLost{Attempt: 1, EpochsDone: 12})
	j.Take(after(2000), &event.Started{Attempt: 2, Devices: []train.DeviceID{"gpu:0"}, FromScratch: true})
	if m := j.Model(); m.Progress != 0 || m.Convergence != nil || m.Efficiency != nil || m.EpochSeconds != 10 {
		t.Errorf("began again with %+v", m)
	}
	epochs(2, 1, 2)
	epochs(1, 13) // the agent of the first attempt was away
	if r, known := j.Estimate(j.Model()); !known || r.EpochsDone != 2 || j.Converged() != nil {
		t.Errorf("after two epochs: estimate %+v, %v, converged %v", r, known, j.Converged())
	}
	epochs(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	if again := j.Converged(); again == nil || *again != *c {
		t.Errorf("converges after %+v, the first time after %+v", again, c)
	}
}

func TestHeartbeatsTeachBeforeTheFirstEpoch(t *testing.T) {
	j := New("a", spec(), anyModel)
	if j.Stepped(after(20), event.Stepped{Attempt: 1, StepSeconds: 0.3, Devices: 1}) {
		t.Fatal("a heartbeat of an attempt that was not started")
	}
	j.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
	for range 3 {
		if !j.Stepped(after(20), event.Stepped{Attempt: 1, StepSeconds: 0.3, Steps: 10, Devices: 1}) {
			t.Fatal("a heartbeat was not taken")
		}
	}
	m := j.Model()
	if got := m.Speed.StepSeconds(j.config(j.attempt, 1, train.Batch{})); math.Abs(got-0.3) > 1e-9 || m.StepsSeen != 30 {
		t.Fatalf("%v s a step of %v", got, m.StepsSeen)
	}
	if _, known := j.Estimate(m); known {
		t.Fatal("an estimate before the first epoch")
	}
	// The epoch's own mean replaces its heartbeats, so that a restart, which does not see them, learns the same.
	j.epochEnded(after(40), &event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 40, StepSeconds: 0.35, Steps: 100, Devices: 1})
	if got := j.Model().Speed.StepSeconds(j.config(j.attempt, 1, train.Batch{})); math.Abs(got-0.35) > 1e-9 {
		t.Fatalf("%v s a step, want 0.35", got)
	}
	if j.Stepped(after(20), event.Stepped{Attempt: 2, StepSeconds: 0.3}) || j.Stepped(after(20), event.Stepped{Attempt: 1, StepSeconds: math.NaN()}) {
		t.Fatal("a heartbeat without sense was taken")
	}
}

func TestMissingDurationsComeFromTheFacts(t *testing.T) {
	j := New("a", spec(), anyModel)
	j.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
	j.epochEnded(after(12), &event.EpochEnded{Attempt: 1, EpochsDone: 1})
	j.epochEnded(after(22), &event.EpochEnded{Attempt: 1, EpochsDone: 2})
	j.epochEnded(after(50), &event.EpochEnded{Attempt: 1, EpochsDone: 4}) // one epoch is missing: its share is unknown
	j.attemptEnded(after(51), 1)
	j.started(after(60), &event.Started{Attempt: 2, Devices: []train.DeviceID{"cpu:0", "cpu:1"}, EpochsDone: 4})
	j.epochEnded(after(67), &event.EpochEnded{Attempt: 2, EpochsDone: 5})
	var got []string
	for _, e := range j.History.Epochs {
		got = append(got, fmt.Sprintf("%d: %v s on %d, %d steps", e.Epoch, e.Seconds, e.Config.Workers, e.Steps))
	}
	want := []string{"1: 12 s on 1, 100 steps", "2: 10 s on 1, 100 steps", "4: 0 s on 1, 100 steps", "5: 7 s on 2, 50 steps"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if j.elapsed != 58 { // 51 s of the first attempt, 7 of the second
		t.Fatalf("%v s elapsed, want 58", j.elapsed)
	}
	// A late end of the first attempt closes nothing.
	if j.attemptEnded(after(70), 1); j.startedAt.IsZero() {
		t.Fatal("an old attempt ended the new one")
	}
}

func TestAnEpochMayArriveBeforeTheStartOfItsAttempt(t *testing.T) {
	s := spec()
	s.Strategy = train.StrategyParameterServer
	j := New("a", s, anyModel)
	two := []train.DeviceID{"gpu:0", "gpu:1"}
	j.epochEnded(after(2), &event.EpochEnded{Attempt: 1, EpochsDone: 1, EpochSeconds: 2, Steps: 10, StepSeconds: 0.2, Devices: 2})
	j.started(after(3), &event.Started{Attempt: 1, Devices: two, Servers: 1})
	j.epochEnded(after(4), &event.EpochEnded{Attempt: 1, EpochsDone: 2, EpochSeconds: 2, Steps: 10, StepSeconds: 0.2, Devices: 2})
	j.epochEnded(after(5), &event.EpochEnded{Attempt: 2, EpochsDone: 3, EpochSeconds: 1, Steps: 10, StepSeconds: 0.1, Devices: 2})
	j.started(after(6), &event.Started{Attempt: 2, Devices: two, Servers: 2})
	var got []string
	for _, e := range j.History.Epochs {
		got = append(got, fmt.Sprintf("epoch %d: %d servers", e.Epoch, e.Config.Servers))
	}
	for _, x := range j.History.Steps {
		got = append(got, fmt.Sprintf("%d servers: %v s, %v steps", x.Config.Servers, x.StepSeconds, x.Weight))
	}
	want := []string{"epoch 1: 1 servers", "epoch 2: 1 servers", "epoch 3: 2 servers", "1 servers: 0.2 s, 20 steps", "2 servers: 0.1 s, 10 steps"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestAJobThatOutrunsItsEstimateLosesPriority(t *testing.T) {
	for _, tc := range []struct {
		hours   float64
		epochs  int
		penalty int
		warning string
	}{
		{0, 1, 0, ""},
		{12, 1, 0, ""},
		{9, 5, 0, ""}, // 11 % more is within the tolerance
		{8, 1, 0, ""}, // one epoch is not enough
		{8, 5, 1, "will run for about 10.0 h, 25 % more than the 8 h that were estimated: its priority is lowered by 1"},
		{4, 1, 2, "will run for about 10.0 h, 150 % more than the 4 h that were estimated: its priority is lowered by 2"},
		{1.5, 1, 3, "will run for about 10.0 h, 567 % more than the 1.5 h that were estimated: its priority is lowered by 3"},
	} {
		s := spec()
		s.EstimatedHours = tc.hours
		j := New("a", s, anyModel)
		j.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
		for e := 1; e <= tc.epochs; e++ {
			j.epochEnded(after(3600*float64(e)), &event.EpochEnded{Attempt: 1, EpochsDone: e, EpochSeconds: 3600, Devices: 1})
		}
		r, known := j.Estimate(j.Model())
		if !known || r.PriorityPenalty != tc.penalty || r.Warning != tc.warning {
			t.Errorf("%v h, %d epochs: penalty %d, warning %q", tc.hours, tc.epochs, r.PriorityPenalty, r.Warning)
		}
	}
}

func TestOnlyChangesArePublished(t *testing.T) {
	j := New("a", spec(), anyModel)
	first := event.Reestimated{TotalSeconds: 100}
	if !j.Differs(first) {
		t.Fatal("the first estimate has to be published")
	}
	j.Published = &first
	for _, tc := range []struct {
		next    event.Reestimated
		differs bool
	}{
		{event.Reestimated{TotalSeconds: 105}, false},
		{event.Reestimated{TotalSeconds: 106}, true},
		{event.Reestimated{TotalSeconds: 94}, true},
		{event.Reestimated{TotalSeconds: 100, PriorityPenalty: 1}, true},
		{event.Reestimated{TotalSeconds: 100, EpochsDone: 9}, false},
	} {
		if j.Differs(tc.next) != tc.differs {
			t.Errorf("%+v: news is %v", tc.next, !tc.differs)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := spec()
	s.MaxEpochs = 10_000
	j := New("a", s, anyModel)
	j.started(after(0), &event.Started{Attempt: 1, Devices: []train.DeviceID{"cpu:0"}})
	for i := 1; i <= 5000; i++ {
		j.Stepped(after(20), event.Stepped{Attempt: 1, StepSeconds: 0.1, Devices: 1 + i%3})
		j.epochEnded(after(float64(i)), &event.EpochEnded{Attempt: 1, EpochsDone: i, EpochSeconds: 1, Devices: 1, Loss: new(1 + 1/float64(i))})
	}
	epochs := j.History.Epochs
	if len(epochs) > maxEpochRecords || len(j.History.Steps) > 3 || len(j.live) > 3 {
		t.Fatalf("%d epochs, %d step samples, %d live", len(epochs), len(j.History.Steps), len(j.live))
	}
	if epochs[0].Epoch != 1 || epochs[len(epochs)-1].Epoch != 5000 || epochs[len(epochs)-recentEpochs].Epoch != 5001-recentEpochs {
		t.Fatalf("kept epochs %d .. %d .. %d", epochs[0].Epoch, epochs[len(epochs)-recentEpochs].Epoch, epochs[len(epochs)-1].Epoch)
	}
	if m := j.Model(); m.Convergence == nil || m.EpochSeconds != 1 {
		t.Fatalf("model %+v", m)
	}
}

// TestWhateverIsReportedTheEstimateHasSense draws facts without order.
func TestWhateverIsReportedTheEstimateHasSense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := spec()
		s.EstimatedHours = rapid.SampledFrom([]float64{0, 1.5, 100}).Draw(t, "hours")
		j := New("a", s, anyModel)
		seconds, number := rapid.Float64Range(-5, 1e6), rapid.IntRange(-1, 12)
		for range rapid.IntRange(0, 30).Draw(t, "facts") {
			at := after(seconds.Draw(t, "at"))
			switch rapid.IntRange(0, 3).Draw(t, "fact") {
			case 0:
				j.started(at, &event.Started{Attempt: number.Draw(t, "attempt"), Devices: make([]train.DeviceID, rapid.IntRange(0, 3).Draw(t, "devices"))})
			case 1:
				j.attemptEnded(at, number.Draw(t, "attempt"))
			case 2:
				j.Stepped(after(20), event.Stepped{Attempt: number.Draw(t, "attempt"), StepSeconds: seconds.Draw(t, "step"), Devices: number.Draw(t, "devices"), Steps: number.Draw(t, "steps")})
			default:
				l := seconds.Draw(t, "loss")
				j.epochEnded(at, &event.EpochEnded{Attempt: 1, EpochsDone: number.Draw(t, "epochs"), EpochSeconds: seconds.Draw(t, "epoch"), Devices: number.Draw(t, "devices"), Loss: &l})
			}
		}
		m := j.Model()
		r, known := j.Estimate(m)
		if !known {
			return
		}
		if _, err := (event.Fact{Body: r}).Encode(); err != nil {
			t.Fatal(err)
		}
		if r.TotalSeconds < 0 || r.RemainingLowSeconds > r.RemainingSeconds || r.RemainingSeconds > r.RemainingHighSeconds || (r.Warning == "") != (r.PriorityPenalty == 0) {
			t.Fatalf("estimate %+v", r)
		}
	})
}

func TestThinKeepsTheOrder(t *testing.T) {
	var epochs []curve.EpochRecord
	for i := range maxEpochRecords + 1 {
		epochs = append(epochs, curve.EpochRecord{Epoch: i})
	}
	last := -1
	for _, e := range thin(epochs) {
		if e.Epoch <= last {
			t.Fatalf("epoch %d after %d", e.Epoch, last)
		}
		last = e.Epoch
	}
	if got := len(thin(epochs)); got >= maxEpochRecords || last != maxEpochRecords || !strings.HasPrefix(fmt.Sprint(got), "40") {
		t.Fatalf("%d kept, the last one %d", got, last)
	}
}
