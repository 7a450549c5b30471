package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// gangDay is a cluster on which gangs come, learn and end.
type gangDay struct {
	dice  *rand.Rand
	state State
	born  int
}

func newGangDay(seed uint64) *gangDay {
	d := &gangDay{dice: rand.New(rand.NewPCG(seed, 2))}
	models := []string{"a"}
	if d.dice.IntN(2) == 0 {
		models = append(models, "b")
	}
	for i := range 1 + d.dice.IntN(6) {
		n := train.Node{ID: train.NodeID(fmt.Sprintf("n%d", i))}
		model := models[d.dice.IntN(len(models))]
		busy, idle := randomWatts(d.dice)
		for k := range 1 + d.dice.IntN(8) {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", k)), Kind: train.KindGPU, Model: model, BusyWatts: busy, IdleWatts: idle})
		}
		d.state.Nodes = append(d.state.Nodes, n)
	}
	d.state.Now = time.Unix(1000, 0)
	randomTerms(d.dice, &d.state)
	return d
}

func (d *gangDay) change() {
	d.state.Now = d.state.Now.Add(time.Minute)
	for range d.dice.IntN(4) {
		d.born++
		d.state.Jobs = append(d.state.Jobs, d.job())
	}
	d.state.Jobs = slices.DeleteFunc(d.state.Jobs, func(Job) bool { return d.dice.IntN(10) == 0 })
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		if j.Planned == nil {
			continue
		}
		n, nodes := 0, j.Planned.Places()
		for _, p := range nodes {
			n += len(p.Devices)
		}
		j.DeviceSeconds += 60 * float64(n) * float64(1+d.dice.IntN(100))
		j.EpochsDone = min(j.EpochsDone+1, j.Spec.MaxEpochs)
		j.Model.Efficiency = &train.Efficiency{Variance: 10 * d.dice.Float64(), Square: 1, BaseBatch: 8}
		step := 0.1 + d.dice.Float64()
		j.Model.Ran = append(j.Model.Ran, train.Ran{
			Config: train.Config{Workers: n, Nodes: len(nodes), LocalBatch: 4 + d.dice.IntN(9)}, Device: "a", StepSeconds: step, SyncSeconds: step / 4,
		})
	}
}

func (d *gangDay) job() Job {
	j := Job{
		ID: train.JobID(fmt.Sprintf("j%03d", d.born)), SubmittedAt: d.state.Now.Add(-time.Duration(d.dice.IntN(60)) * time.Second),
		Spec: train.Spec{
			Command: []string{fmt.Sprint(d.dice.IntN(3))}, MinDevices: 1, MaxDevices: 1 + d.dice.IntN(16), MaxEpochs: 10, TrainingSetSize: 1000,
			Tenant: fmt.Sprint("t", d.dice.IntN(3)), BatchSize: 8, GlobalBatchSize: 8,
			AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 256, MinPerDevice: 4, MaxPerDevice: 32},
		},
		Model:    &train.Model{},
		Priority: 50 + 20*(d.dice.IntN(4)/3),
	}
	return j
}

// TestGangsKeepThePromises plays random days of gangs over several nodes, of jobs that leave the batch to the planner,
// with each policy.
func TestGangsKeepThePromises(t *testing.T) {
	for _, policy := range []Policy{FIFO{}, SRTF{}, Optimus{}, Switchyard{}} {
		t.Run(policy.Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				d := newGangDay(rapid.Uint64().Draw(t, "day"))
				for range rapid.IntRange(1, 8).Draw(t, "rounds") {
					d.change()
					p := Decide(d.state, policy)
					checkGangs(t, d.state, p, policy)
					checkTerms(t, d.state, p)
					checkSameBytes(t, d.state, p, policy)
					d.state = applied(d.state, p)
					again := Decide(d.state, policy)
					for _, a := range p.Allocations {
						if b, has := again.Find(a.Job); !has || !holdingOf(a).Same(*holdingOf(b)) {
							t.Fatalf("the plan was carried out, and %s is moved:\n%s\n%s", a.Job, words(p), words(again))
						}
					}
				}
			})
		})
	}
}

func checkSameBytes(t *rapid.T, s State, p train.Plan, policy Policy) {
	want, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	s.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
	if got, _ := json.Marshal(Decide(s, policy)); string(got) != string(want) {
		t.Fatalf("the same state gives another plan:\n%s\n%s", want, got)
	}
}

// checkGangs: each device is given once and exists, a gang has one model of device, each job is in the plan once; who
// gets what was asked for gets all or nothing; resized ones stay in their limits.
func checkGangs(t *rapid.T, s State, p train.Plan, policy Policy) {
	models := map[string]string{}
	for _, n := range s.Nodes {
		for _, d := range n.Devices {
			models[string(n.ID)+"/"+string(d.ID)] = d.Model
		}
	}
	given := map[string]bool{}
	for _, a := range p.Allocations {
		n, model := 0, ""
		for _, part := range a.Places() {
			if len(a.Parts) == 1 || len(part.Devices) == 0 {
				t.Fatalf("%s has parts %v: one part belongs in node and devices, none is empty", a.Job, a.Parts)
			}
			for _, d := range part.Devices {
				key := string(part.Node) + "/" + string(d)
				is, exists := models[key]
				if !exists || given[key] {
					t.Fatalf("%s gets %s (exists: %v, given before: %v)", a.Job, key, exists, given[key])
				}
				if n > 0 && is != model {
					t.Fatalf("%s gets devices of models %q and %q", a.Job, model, is)
				}
				given[key], model = true, is
				n++
			}
		}
		j := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == a.Job })]
		if least, most := policy.Bounds(&j, j.Spec); n < least || n > most {
			t.Fatalf("%s gets %d devices, wants %d to %d", j.ID, n, least, most)
		}
	}
	if len(p.Allocations)+len(p.Waiting) != len(s.Jobs) {
		t.Fatalf("%d jobs, %d allocations and %d waiting", len(s.Jobs), len(p.Allocations), len(p.Waiting))
	}
}

// large is a cluster with nodes of 8 devices, and jobs of 25 tasks.
func large(nodes, jobs int) State {
	s := State{Now: time.Unix(1000, 0)}
	devices := make([]train.Device, 8)
	for i := range devices {
		devices[i] = train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Kind: train.KindGPU}
	}
	for i := range nodes {
		s.Nodes = append(s.Nodes, train.Node{ID: train.NodeID(fmt.Sprintf("n%05d", i)), Devices: devices})
	}
	for i := range jobs {
		s.Jobs = append(s.Jobs, Job{
			ID: train.JobID(fmt.Sprintf("j%05d", i)), SubmittedAt: time.Unix(int64(i), 0),
			Spec: train.Spec{MinDevices: 25, MaxDevices: 40, MaxEpochs: 10, BatchSize: 40, GlobalBatchSize: 1000, AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 1000}},
		})
	}
	return s
}

// largeLater is the large cluster after its first decision was carried out, half of the jobs have ended and as many
// came.
func largeLater(nodes, jobs int, policy Policy) State {
	s := large(nodes, jobs)
	s = applied(s, Decide(s, policy))
	for i := 0; i < len(s.Jobs); i += 2 {
		s.Jobs[i].ID, s.Jobs[i].Planned, s.Jobs[i].Running = s.Jobs[i].ID+"x", nil, nil
	}
	return s
}

// TestDecisionsAllocateInProportion: four times as many jobs on four times as many nodes take about four times as many
// allocations, and few for each job.
func TestDecisionsAllocateInProportion(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		most   float64 // for each job
	}{{FIFO{}, 75}, {Switchyard{}, 100}} {
		perJob := func(jobs int) float64 {
			s := largeLater(4*jobs, jobs, c.policy)
			return testing.AllocsPerRun(1, func() { Decide(s, c.policy) }) / float64(jobs)
		}
		few, many := perJob(250), perJob(1000)
		t.Logf("%s: %.1f allocations for each of 250 jobs, %.1f for each of 1000", c.policy.Name(), few, many)
		if many > 1.25*few+1 || many > c.most {
			t.Errorf("%s: %.1f allocations for each of 250 jobs, %.1f for each of 1000, want at most %.0f", c.policy.Name(), few, many, c.most)
		}
	}
}

// BenchmarkGangs also tells the processor time, since a busy machine makes the clock run ahead of it.
func BenchmarkGangs(b *testing.B) {
	for _, name := range PolicyNames() {
		for _, jobs := range []int{250, 500, 1000, 2000, 4000, 8000} {
			b.Run(fmt.Sprintf("%s/%d", name, jobs), func(b *testing.B) {
				policy, err := Find(name)
				if err != nil {
					b.Fatal(err)
				}
				s := largeLater(16000, jobs, policy)
				b.ReportAllocs()
				before := processorSeconds(b)
				for b.Loop() {
					Decide(s, policy)
				}
				b.ReportMetric(1e3*(processorSeconds(b)-before)/float64(b.N), "cpu-ms/op")
			})
		}
	}
}
