package plan

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// shop is a small cluster on which gangs progress as their step times and gradient noise say, a minute at a time.
type shop struct {
	state State
	born  int
}

func newShop(nodes, perNode int) *shop {
	s := &shop{state: State{Now: time.Unix(0, 0), Tuning: Tuning{RestartSeconds: 30}}}
	for i := range nodes {
		n := train.Node{ID: train.NodeID(fmt.Sprintf("n%02d", i))}
		for k := range perNode {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", k)), Kind: train.KindGPU})
		}
		s.state.Nodes = append(s.state.Nodes, n)
	}
	return s
}

// submit adds a job that takes the given seconds on one device at the base batch.
func (s *shop) submit(signature string, seconds int) train.JobID {
	s.born++
	j := Job{
		ID: train.JobID(fmt.Sprintf("%s-%03d", signature, s.born)), SubmittedAt: s.state.Now, Model: &train.Model{},
		Spec: train.Spec{
			Command: []string{signature}, MinDevices: 1, MaxDevices: 64, MaxEpochs: 10, TrainingSetSize: seconds * 16, BatchSize: 16, GlobalBatchSize: 16,
			AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 1024, MinPerDevice: 4, MaxPerDevice: 32},
		},
	}
	s.state.Jobs = append(s.state.Jobs, j)
	return j.ID
}

// truth is the step time: a tenth of a second a sample, and the network.
func truth(devices, nodes, local int) (step, sync float64) {
	switch {
	case nodes > 1:
		sync = 0.2
	case devices > 1:
		sync = 0.05
	}
	return 0.1*float64(local)/16*10 + sync, sync
}

// minute decides, carries the plan out and lets the jobs run; ended ones leave.
func (s *shop) minute() train.Plan {
	p := Decide(s.state, Switchyard{})
	s.state = applied(s.state, p)
	s.state.Now = s.state.Now.Add(time.Minute)
	var alive []Job
	for _, j := range s.state.Jobs {
		if a, ok := p.Find(j.ID); ok {
			devices := given(a)
			nodes := len(a.Places())
			step, sync := truth(devices, nodes, a.Batch.LocalBatch)
			noise := train.Efficiency{Variance: 20, Square: 1, BaseBatch: 16}
			seconds := step + float64(a.Batch.Accumulation)*(step-sync)
			j.Model.Progress += 60 * noise.Gain(a.Batch.Global(devices)) / seconds
			j.DeviceSeconds += 60 * float64(devices)
			j.EpochsDone = min(int(j.Model.Progress/float64(j.Spec.TrainingSetSize)*16), j.Spec.MaxEpochs)
			j.Model.Efficiency = &noise
			j.Model.Ran = append(j.Model.Ran, train.Ran{
				Config: train.Config{Workers: devices, Nodes: nodes, LocalBatch: a.Batch.LocalBatch}, Device: s.model(a), StepSeconds: step, SyncSeconds: sync,
			})
		}
		if j.EpochsDone < j.Spec.MaxEpochs {
			alive = append(alive, j)
		}
	}
	s.state.Jobs = alive
	return p
}

// model is the kind of device that a job got.
func (s *shop) model(a train.Allocation) string {
	at := slices.IndexFunc(s.state.Nodes, func(n train.Node) bool { return n.ID == a.Places()[0].Node })
	return s.state.Nodes[at].Devices[0].Model
}

func given(a train.Allocation) int {
	sum := 0
	for _, p := range a.Places() {
		sum += len(p.Devices)
	}
	return sum
}

// TestSwitchyardLetsNobodyStarve: short jobs arrive for ever, at up to 70 % of what the cluster can do; a long one ends
// all the same.
func TestSwitchyardLetsNobodyStarve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newShop(rapid.IntRange(1, 2).Draw(t, "nodes"), rapid.IntRange(1, 3).Draw(t, "devices"))
		devices := float64(len(s.state.Nodes) * len(s.state.Nodes[0].Devices))
		load := rapid.Float64Range(0.1, 0.7).Draw(t, "load")
		long := s.submit("long", int(3600*devices/10))
		work := 0.0
		for minute := range 60 * 40 {
			// A short job is ten epochs of a minute each on one device.
			for work += load * devices / 10; work >= 1; work-- {
				s.submit("short", 60)
			}
			s.minute()
			if _, running := find(s.state, long); !running {
				t.Logf("ended after %d minutes", minute)
				return
			}
		}
		t.Fatal("the long job has not ended in 40 hours")
	})
}

// TestSwitchyardKeepsTheStarvationBound: of the jobs that have waited for longer than the bound, the first in order of
// submission hold devices, as many as there are. So as long as no more jobs than devices have waited for longer, nobody
// waits longer than the bound and one interval.
func TestSwitchyardKeepsTheStarvationBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newShop(1, rapid.IntRange(1, 4).Draw(t, "devices"))
		devices := len(s.state.Nodes[0].Devices)
		bound := 60 * float64(rapid.IntRange(5, 60).Draw(t, "bound"))
		s.state.Tuning.StarvationSeconds = bound
		load := rapid.Float64Range(0.5, 3).Draw(t, "load")
		waited, work, crowded := map[train.JobID]float64{}, 0.0, false
		for range 120 {
			for work += load * float64(devices) / 10; work >= 1; work-- {
				s.submit("short", rapid.IntRange(10, 300).Draw(t, "seconds"))
			}
			for i := range s.state.Jobs {
				j := &s.state.Jobs[i]
				j.RunSeconds = s.state.Now.Sub(j.SubmittedAt).Seconds() - waited[j.ID]
			}
			before := s.state
			p := s.minute()
			starved := 0
			for _, j := range before.Jobs {
				_, runs := p.Find(j.ID)
				if waited[j.ID] > bound {
					starved++
					if starved <= devices && !runs {
						t.Fatalf("%s has waited for %.0f s, with %d before it on %d devices", j.ID, waited[j.ID], starved-1, devices)
					}
				}
				if !runs {
					waited[j.ID] += 60
				}
				if crowded = crowded || starved > devices; !crowded && waited[j.ID] > bound+60 {
					t.Fatalf("%s has waited for %.0f s, the bound is %.0f s", j.ID, waited[j.ID], bound)
				}
			}
		}
	})
}

func find(s State, id train.JobID) (Job, bool) {
	for _, j := range s.Jobs {
		if j.ID == id {
			return j, true
		}
	}
	return Job{}, false
}

// TestSwitchyardLearnsFromSignatures: the first job of its kind begins at the base batch, the second one knows better.
func TestSwitchyardLearnsFromSignatures(t *testing.T) {
	s := newShop(1, 4)
	first := s.submit("resnet", 600)
	a, _ := s.minute().Find(first)
	if got := a.Batch.Global(given(a)); got != 16 {
		t.Errorf("the first of its kind begins with a batch of %d, want that which was submitted", got)
	}
	for {
		if _, running := find(s.state, first); !running {
			break
		}
		s.submitNothing(t)
	}
	second := s.submit("resnet", 600)
	b, _ := s.minute().Find(second)
	if got := b.Batch.Global(given(b)); got <= 16 {
		t.Errorf("the second of its kind begins with a batch of %d: nothing was learned", got)
	}
	stranger := s.submit("bert", 600)
	s.state.Jobs = s.state.Jobs[1:]
	c, _ := s.minute().Find(stranger)
	if got := c.Batch.Global(given(c)); got != 16 {
		t.Errorf("a stranger begins with a batch of %d: it was taken for another", got)
	}
}

func (s *shop) submitNothing(t *testing.T) {
	t.Helper()
	if s.minute(); s.state.Now.After(time.Unix(100*3600, 0)) {
		t.Fatal("the job never ends")
	}
}

// TestASilentJobKeepsItsBatch: a plan that comes before the job's first call names the batch that it was started with.
func TestASilentJobKeepsItsBatch(t *testing.T) {
	s := newShop(1, 1)
	s.state.Tuning.AtEpochs = true
	id := s.submit("silent", 600)
	first, _ := Decide(s.state, Switchyard{}).Find(id)
	s.state = applied(s.state, train.Plan{Allocations: []train.Allocation{first}})
	s.state.Jobs[0].Running.Spoke, s.state.Jobs[0].Running.Epochs = false, 0
	then, held := Decide(s.state, Switchyard{}).Find(id)
	if !held || first.Batch.LocalBatch == 0 || then.Batch != first.Batch {
		t.Errorf("it was started with %+v, and then had %+v", first.Batch, then.Batch)
	}
}

// TestSwitchyardPaysForRestarts: a gang moves to more devices only while what is left of it is worth the restart.
func TestSwitchyardPaysForRestarts(t *testing.T) {
	for _, c := range []struct {
		restart float64
		grows   bool
	}{{1, true}, {600, false}} {
		s := newShop(1, 4)
		s.state.Tuning.RestartSeconds = c.restart
		job := s.submit("a", 100)
		rival := s.submit("b", 100)
		s.minute()
		before, _ := find(s.state, job)
		s.state.Jobs = []Job{before}
		a, _ := s.minute().Find(job)
		had := len(before.Planned.Devices)
		if got := given(a); got > had != c.grows {
			t.Errorf("a restart costs %.0f s, %s has ended: from %d to %d devices, want it to grow: %v", c.restart, rival, had, got, c.grows)
		}
	}
}

// TestSwitchyardTakesQuietForLasting: a restart that is too long while jobs may come pays when none has come for as
// long as 15 of them.
func TestSwitchyardTakesQuietForLasting(t *testing.T) {
	s := newShop(1, 4)
	s.state.Tuning.RestartSeconds = 250
	job := s.submit("a", 100_000)
	s.submit("b", 100_000)
	s.minute()
	s.state.Jobs = s.state.Jobs[:1]
	before, _ := find(s.state, job)
	had := len(before.Planned.Devices)
	for s.state.Now.Before(time.Unix(500, 0)) {
		if a, _ := s.minute().Find(job); given(a) != had {
			t.Fatalf("at %v it went from %d to %d devices", s.state.Now, had, given(a))
		}
	}
	for s.state.Now.Before(time.Unix(15*250, 0)) {
		s.minute()
	}
	if a, _ := s.minute().Find(job); given(a) != 4 {
		t.Errorf("nobody has come for %v: %d devices of 4", s.state.Now, given(a))
	}
}

// TestSwitchyardForgivesItsMemory: whatever stands in it, there is a plan.
func TestSwitchyardForgivesItsMemory(t *testing.T) {
	for _, memory := range []string{
		"", "null", "{", `{"chapters":null}`, `{"chapters":{"a":null,"b":null}}`, `{"chapters":{"b":{"models":{"":null}}}}`, `{"chapters":{"a":{"models":null}}}`,
		`{"queues":[[],[]]}`, `{"chapters":{"a":{"models":{"":{"samples":[]}},"noise":[{}]}}}`,
	} {
		s := newShop(2, 4)
		job := s.submit("a", 100)
		s.state.Jobs[0].Model.Ran = []train.Ran{{Config: train.Config{Workers: 1, Nodes: 1, LocalBatch: 16}, StepSeconds: 1}}
		s.state.Memory = memory
		p := Decide(s.state, Switchyard{})
		if a, ok := p.Find(job); !ok || a.Batch.LocalBatch == 0 {
			t.Errorf("memory %s: no devices: %+v", memory, p)
		}
	}
}

// BenchmarkSwitchyard is one decision for jobs that have run and learned, on as many devices as there are in the
// published simulations.
func BenchmarkSwitchyard(b *testing.B) {
	for _, jobs := range []int{40, 160} {
		b.Run(fmt.Sprint(jobs), func(b *testing.B) {
			s := newShop(16, 4)
			for i := range jobs {
				s.submit(fmt.Sprint("kind", i%6), 1000*(1+i%7))
			}
			for range 10 {
				s.minute()
			}
			for i := range s.state.Jobs {
				s.state.Jobs[i].Model.Progress++ // news
			}
			b.ReportAllocs()
			before := processorSeconds(b)
			for b.Loop() {
				Decide(s.state, Switchyard{})
			}
			b.ReportMetric(1e3*(processorSeconds(b)-before)/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkSwitchyardTypes is one decision for 160 jobs at once on 64 devices of three models.
func BenchmarkSwitchyardTypes(b *testing.B) {
	s := newShop(11, 8)
	for i := range s.state.Nodes {
		n := &s.state.Nodes[i]
		model := "slow"
		switch {
		case i < 6:
			n.Devices = n.Devices[:4]
		case i < 8:
			model = "fast"
		default:
			model = "middle"
		}
		for k := range n.Devices {
			n.Devices[k].Model = model
		}
	}
	for i := range 160 {
		s.submit(fmt.Sprint("kind", i%6), 10000*(1+i%7))
	}
	for range 10 {
		s.minute()
	}
	if len(s.state.Jobs) != 160 {
		b.Fatalf("%d jobs are left", len(s.state.Jobs))
	}
	for i := range s.state.Jobs {
		s.state.Jobs[i].Model.Progress++ // news
	}
	b.ReportAllocs()
	before := processorSeconds(b)
	for b.Loop() {
		Decide(s.state, Switchyard{})
	}
	b.ReportMetric(1e3*(processorSeconds(b)-before)/float64(b.N), "cpu-ms/op")
}

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

// processorSeconds is what this process has used so far, the collection of garbage included.
func processorSeconds(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
