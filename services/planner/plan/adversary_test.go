package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestNonsenseHurtsNobodyElse: one job has a model and numbers that make no sense. There is a plan all the same that
// can be published, it gives each device once, and none is idle while a job waits.
func TestNonsenseHurtsNobodyElse(t *testing.T) {
	for name, policy := range Policies() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
				s := State{Now: time.Unix(1000, 0), Tuning: live()}
				s.Nodes = []train.Node{{ID: "n0"}, {ID: "n1"}}
				for i := range 4 {
					s.Nodes[1].Devices = append(s.Nodes[1].Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Kind: train.KindGPU})
				}
				for i := range 3 {
					s.Jobs = append(s.Jobs, Job{
						ID: train.JobID(fmt.Sprint("good", i)), Priority: 50, SubmittedAt: time.Unix(int64(i), 0),
						Spec: train.Spec{MinDevices: 1, MaxDevices: 1, BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 10, EstimatedHours: 1},
					})
				}
				bad := nonsense(s.Now, dice)
				s.Jobs = append(s.Jobs, bad)
				s.Tuning.RestartSeconds = oddNumber(dice)
				p := Decide(s, policy)
				checkDevices(t, s, p)
				used := 0
				for _, a := range p.Allocations {
					used += len(train.AllDevices(a.Places()))
				}
				if len(p.Waiting) > 0 && used < 4 {
					t.Fatalf("%d devices of 4 are used:\n%s\n%+v %+v", used, words(p), bad, bad.Model)
				}
				if _, err := json.Marshal(p); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func oddNumber(dice *rand.Rand) float64 {
	return []float64{0, 1e-300, 1e-9, 1, 1e9, 1e300, math.MaxFloat64}[dice.IntN(7)]
}

// nonsense is a job whose numbers do not go together.
func nonsense(now time.Time, dice *rand.Rand) Job {
	number := func() float64 { return oddNumber(dice) }
	whole := func() int { return []int{0, 1, 2, 1000, math.MaxInt32, math.MaxInt - 1}[dice.IntN(6)] }
	bad := Job{
		ID: "bad", Priority: 50, SubmittedAt: time.Unix(int64(dice.IntN(5)), 0), EpochsDone: whole(), RunSeconds: number(), DeviceSeconds: number(),
		Spec: train.Spec{
			MinDevices: 1, MaxDevices: whole(), BatchSize: whole(), TrainingSetSize: whole(), MaxEpochs: whole(), EstimatedHours: number(),
			Deadline: new(now.Add(time.Duration(dice.IntN(3)-1) * time.Second)), Strategy: train.StrategyAllReduce,
		},
	}
	if dice.IntN(2) == 0 {
		bad.Model = &train.Model{
			StartSeconds: number(), Progress: number(), EpochSeconds: number(), EpochSteps: number(), StepsSeen: number(), EpochsSeen: whole(),
			EpochConfig: train.Config{Workers: 1 + dice.IntN(3), Nodes: 1, LocalBatch: whole()},
			Speed:       train.Speed{Kind: train.SpeedAllReduce, AllReduce: train.AllReduce{ComputeFixed: number(), ComputePerSample: number(), LocalBase: number()}},
		}
	}
	if dice.IntN(3) == 0 {
		bad.Spec.Stop = &train.StopSpec{LossDecrease: number(), Epochs: whole()}
	}
	return bad
}

// TestANodeThatIsListedTwiceHasItsDevicesOnce: two of one id, as two agents might say, are one.
func TestANodeThatIsListedTwiceHasItsDevicesOnce(t *testing.T) {
	for name, policy := range Policies() {
		s := smallNetwork(2)
		s.Nodes[1].ID, s.Tuning.OneNode = s.Nodes[0].ID, true
		for i := range 8 {
			s.Jobs = append(s.Jobs, gangOf(fmt.Sprint("j", i), 1))
		}
		given := map[train.DeviceID]train.JobID{}
		for _, a := range Decide(s, policy).Allocations {
			for _, d := range a.Devices {
				if other, taken := given[d]; taken {
					t.Errorf("%s: %s is given to %s and to %s", name, d, other, a.Job)
				}
				given[d] = a.Job
			}
		}
		if len(given) == 0 {
			t.Errorf("%s: nobody gets anything", name)
		}
	}
}

// TestNobodyMovesForNothing: prices alone would give the short job a second device of a job with a higher priority, but
// the two devices are on different nodes. All jobs stay, since one device elsewhere is no gain.
func TestNobodyMovesForNothing(t *testing.T) {
	s := State{Now: time.Unix(1000, 0), Tuning: live()}
	for i, size := range []int{2, 1} {
		n := train.Node{ID: train.NodeID(fmt.Sprint("n", i))}
		for d := range size {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU})
		}
		s.Nodes = append(s.Nodes, n)
	}
	running := func(id string, priority, epochs int, node train.NodeID, seconds []float64, devices ...train.DeviceID) {
		var samples []curve.StepSample
		for i, step := range seconds {
			samples = append(samples, curve.StepSample{Config: train.Config{Workers: i + 1, Nodes: 1, LocalBatch: 10}, StepSeconds: step, Weight: 100})
		}
		speed, err := curve.FitStepTime(samples, curve.DevicePrior{})
		if err != nil {
			t.Fatal(err)
		}
		h := Holding{Node: node, Devices: devices}
		s.Jobs = append(s.Jobs, Job{
			ID: train.JobID(id), Priority: priority, EpochsDone: 2, Planned: &h, Running: &Running{Holding: h, Spoke: true, Epochs: 2, Seconds: 100},
			Spec:  train.Spec{MinDevices: 1, MaxDevices: 2, BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: epochs},
			Model: &train.Model{Speed: speed, EpochsSeen: 2},
		})
	}
	running("long", 50, 1000, "n0", []float64{1, 0.95}, "gpu:0", "gpu:1")
	running("short", 30, 50, "n1", []float64{1, 0.5}, "gpu:0")
	p := Decide(s, Switchyard{})
	for _, j := range s.Jobs {
		if a, has := p.Find(j.ID); !has || a.Node != j.Planned.Node || !train.SameDevices(a.Devices, j.Planned.Devices) {
			t.Errorf("%s held %v:\n%s", j.ID, j.Planned, words(p))
		}
	}
}
