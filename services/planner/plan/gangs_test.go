package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
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
		for k := range 1 + d.dice.IntN(8) {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", k)), Kind: train.KindGPU, Model: model})
		}
		d.state.Nodes = append(d.state.Nodes, n)
	}
	d.state.Now = time.Unix(1000, 0)
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
		n, nodes := 0, j.Planned.places()
		for _, p := range nodes {
			n += len(p.Devices)
		}
		j.DeviceSeconds += 60 * float64(n) * float64(1+d.dice.IntN(100))
		j.EpochsDone = min(j.EpochsDone+1, j.Spec.MaxEpochs)
		j.Noise = &train.Efficiency{Variance: 10 * d.dice.Float64(), Square: 1, BaseBatch: 8}
		step := 0.1 + d.dice.Float64()
		j.Seen = append(j.Seen, Seen{
			Config: train.Config{Workers: n, Nodes: len(nodes), LocalBatch: 4 + d.dice.IntN(9)}, Model: "a", StepSeconds: step, SyncSeconds: step / 4,
		})
		if d.dice.IntN(3) == 0 {
			j.Speeds = map[string]train.Speed{"a": Pollux{}.Learn(j.Seen)}
		}
	}
}

func (d *gangDay) job() Job {
	j := Job{
		ID: train.JobID(fmt.Sprintf("j%03d", d.born)), SubmittedAt: d.state.Now.Add(-time.Duration(d.dice.IntN(60)) * time.Second), Signature: fmt.Sprint(d.dice.IntN(3)),
		Spec:    train.Spec{MinDevices: 1, MaxDevices: 1 + d.dice.IntN(16), MaxEpochs: 10, TrainingSetSize: 1000},
		Request: &Request{Devices: 1 + d.dice.IntN(12), GlobalBatch: 64}, Limits: &Limits{BaseBatch: 8, MaxBatch: 256, MinLocal: 4, MaxLocal: 32},
	}
	o := Oracle{RemainingSteps: 1000 * d.dice.Float64()}
	for n := range 1 + d.dice.IntN(16) {
		o.StepSeconds = append(o.StepSeconds, (0.5+d.dice.Float64())/float64(n+1))
	}
	j.Oracle = &o
	return j
}

// apply carries the plan out.
func (d *gangDay) apply(p train.Plan) { d.state = applied(d.state, p) }

func applied(s State, p train.Plan) State {
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Planned, j.Running = nil, nil
		if a, ok := p.Find(j.ID); ok {
			h := Holding{Node: a.Node, Devices: a.Devices, Parts: a.Parts}
			j.Planned, j.Running = &h, &Running{Holding: h, Spoke: true, Epochs: 1, Seconds: 60}
		}
	}
	s.Memory = p.Memory
	return s
}

// TestGangsKeepThePromises plays random days with each policy of simulations.
func TestGangsKeepThePromises(t *testing.T) {
	for _, name := range PublishedNames() {
		t.Run(name, func(t *testing.T) {
			policy, err := FindPublished(name)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				d := newGangDay(rapid.Uint64().Draw(t, "day"))
				rounds := rapid.IntRange(1, 8).Draw(t, "rounds")
				if name == "pollux" {
					rounds = 1 + rounds/4 // a decision takes a while
				}
				for range rounds {
					d.change()
					p := Decide(d.state, policy)
					checkGangs(t, d.state, p, policy)
					checkSameBytes(t, d.state, p, policy)
					d.apply(p)
					if name != "pollux" { // it searches at random, and may find something better
						again := Decide(d.state, policy)
						if want, got := held(p), held(again); want != got {
							t.Fatalf("the plan was carried out, and the next one is another:\n%s\n%s", want, got)
						}
					}
				}
			})
		})
	}
}

// held is what a plan gives, as text.
func held(p train.Plan) string {
	words := ""
	for _, a := range p.Allocations {
		words += fmt.Sprintln(a.Job, a.Places())
	}
	return words
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

// checkGangs: each device is given once and exists, a gang has one model of device, each job is in the plan once; who gets what was asked for gets all or
// nothing; resized ones stay in their limits.
func checkGangs(t *rapid.T, s State, p train.Plan, policy Policy) {
	models := map[string]string{}
	for _, n := range s.Nodes {
		for _, d := range n.Devices {
			models[string(n.ID)+"/"+string(d.ID)] = d.Model
		}
	}
	given, spanning := map[string]bool{}, map[train.NodeID]int{}
	for _, a := range p.Allocations {
		n, model := 0, ""
		for _, part := range a.Places() {
			if len(a.Parts) == 1 || len(part.Devices) == 0 {
				t.Fatalf("%s has parts %v: one part belongs in node and devices, none is empty", a.Job, a.Parts)
			}
			if len(a.Parts) > 1 {
				spanning[part.Node]++
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
		checkGangSize(t, s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == a.Job })], n, policy)
	}
	for node, gangs := range spanning {
		if policy.Name() == "pollux" && gangs > 1 {
			t.Fatalf("%d gangs over several nodes meet on %s", gangs, node)
		}
	}
	if len(p.Allocations)+len(p.Waiting) != len(s.Jobs) {
		t.Fatalf("%d jobs, %d allocations and %d waiting", len(s.Jobs), len(p.Allocations), len(p.Waiting))
	}
}

func checkGangSize(t *rapid.T, j Job, n int, policy Policy) {
	most := j.Request.Devices
	switch policy.(type) {
	case OptimusOracle:
		most = max(len(j.Oracle.StepSeconds), 1)
	case Pollux, Switchyard:
		most = j.Spec.MaxDevices
	case DRF:
	default:
		if n != j.Request.Devices {
			t.Fatalf("%s asks for %d devices and gets %d", j.ID, j.Request.Devices, n)
		}
	}
	if n > most {
		t.Fatalf("%s gets %d devices, at most %d are of use", j.ID, n, most)
	}
}

// large is a cluster of so many nodes of 8 devices, and jobs of 25 tasks.
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
		o := Oracle{RemainingSteps: float64(1000 + i%977)}
		for n := range 40 {
			o.StepSeconds = append(o.StepSeconds, 1/float64(n+1)+0.001*float64(n))
		}
		s.Jobs = append(s.Jobs, Job{
			ID: train.JobID(fmt.Sprintf("j%05d", i)), SubmittedAt: time.Unix(int64(i), 0), Spec: train.Spec{MinDevices: 1, MaxDevices: 40, MaxEpochs: 10},
			Request: &Request{Devices: 25, GlobalBatch: 1000}, Oracle: &o,
		})
	}
	return s
}

// largeLater is the large cluster after its first decision was carried out, half of the jobs have ended and as many came.
func largeLater(nodes, jobs int, policy Policy) State {
	s := large(nodes, jobs)
	s = applied(s, Decide(s, policy))
	for i := 0; i < len(s.Jobs); i += 2 {
		s.Jobs[i].ID, s.Jobs[i].Planned, s.Jobs[i].Running = s.Jobs[i].ID+"x", nil, nil
	}
	return s
}

// TestDecisionsAllocateInProportion: four times as many jobs on four times as many nodes take about four times as many allocations, and few for each job.
func TestDecisionsAllocateInProportion(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		most   float64 // for each job
	}{{GangFIFO{}, 30}, {OptimusOracle{}, 110}, {Switchyard{}, 60}} {
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
	for _, name := range []string{"fifo", "tiresias", "optimus", "drf", "switchyard"} {
		for _, jobs := range []int{250, 500, 1000, 2000, 4000, 8000} {
			b.Run(fmt.Sprintf("%s/%d", name, jobs), func(b *testing.B) {
				policy, err := FindPublished(name)
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

// processorSeconds is what this process has used so far, the collection of garbage included.
func processorSeconds(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
