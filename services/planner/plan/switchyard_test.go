package plan

import (
	"fmt"
	"math"
	"slices"
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

// submit adds a job of so many seconds on one device at the base batch.
func (s *shop) submit(signature string, seconds int) train.JobID {
	s.born++
	j := Job{
		ID: train.JobID(fmt.Sprintf("%s-%03d", signature, s.born)), SubmittedAt: s.state.Now, Signature: signature,
		Spec:    train.Spec{MinDevices: 1, MaxDevices: 64, MaxEpochs: 10, TrainingSetSize: seconds * 16},
		Request: &Request{Devices: 1, GlobalBatch: 16}, Limits: &Limits{BaseBatch: 16, MaxBatch: 1024, MinLocal: 4, MaxLocal: 32},
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
			j.Progress += 60 * noise.Gain(a.Batch.Global(devices)) / seconds
			j.DeviceSeconds += 60 * float64(devices)
			j.EpochsDone = min(int(j.Progress/float64(j.Spec.TrainingSetSize)*16), j.Spec.MaxEpochs)
			j.Noise = &noise
			j.Seen = append(j.Seen, Seen{
				Config: train.Config{Workers: devices, Nodes: nodes, LocalBatch: a.Batch.LocalBatch}, Model: s.model(a), StepSeconds: step, SyncSeconds: sync,
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

// TestSwitchyardLetsNobodyStarve: short jobs arrive for ever, at up to 70 % of what the cluster can do; a long one ends all the same.
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

// TestSwitchyardKeepsTheStarvationBound: of the jobs that have waited for longer than the bound, the first in order of submission hold devices, as many as
// there are. So as long as no more jobs than devices have waited for longer, nobody waits longer than the bound and one interval.
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

// TestSwitchyardTakesQuietForLasting: a restart that is too long while jobs may come pays when none has come for as long as 15 of them.
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

// TestSwitchyardPaysForComingBack: what a restart takes off an option, for a job that has never run, for one that was preempted and for one that runs.
func TestSwitchyardPaysForComingBack(t *testing.T) {
	for _, c := range []struct {
		what          string
		ran           float64
		held          []share
		stays         bool
		left, restart float64
		quiet, want   float64
	}{
		{"has never run", 0, nil, false, 1000, 45, 0, 1},
		{"was preempted", 600, nil, false, 1000, 45, 0, 0.95},
		{"was preempted close to its end", 600, nil, false, 10, 45, 0, 0.95},
		{"was preempted, a long restart", 600, nil, false, 1000, 500, 0, 0.75},
		{"was preempted, a long restart, nobody comes", 600, nil, false, 1000, 500, 2500, 0.9},
		{"would move", 600, []share{{0, 1}}, false, 1000, 45, 0, 0.9},
		{"would move, nobody comes any more", 600, []share{{0, 1}}, false, 1000, 45, 1e6, 1 - 1./15},
		{"would move close to its end", 600, []share{{0, 1}}, false, 15, 45, 0, 0.25},
		{"would move close to its end, nobody comes any more", 600, []share{{0, 1}}, false, 15, 45, 1e6, 0.25},
		{"stays", 600, []share{{0, 1}}, true, 1000, 45, 0, 1},
	} {
		job := &candidate{Job: Job{DeviceSeconds: c.ran, RestartSeconds: c.restart}}
		m := &market{fleet: &fleet{board: &board{}}, quiet: c.quiet}
		if got := m.spared(&bidder{gang: &gang{candidate: job, held: c.held}}, &option{held: c.stays, left: c.left}); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("a job that %s counts %.3f of its speed-up, want %.3f", c.what, got, c.want)
		}
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
		s.state.Jobs[0].Seen = []Seen{{Config: train.Config{Workers: 1, Nodes: 1, LocalBatch: 16}, StepSeconds: 1}}
		s.state.Memory = memory
		p := Decide(s.state, Switchyard{})
		if a, ok := p.Find(job); !ok || a.Batch.LocalBatch == 0 {
			t.Errorf("memory %s: no devices: %+v", memory, p)
		}
	}
}

// BenchmarkSwitchyard is one decision for jobs that have run and learned, on as many devices as there are in the published simulations.
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
				s.state.Jobs[i].Progress++ // news
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
		s.state.Jobs[i].Progress++ // news
	}
	b.ReportAllocs()
	before := processorSeconds(b)
	for b.Loop() {
		Decide(s.state, Switchyard{})
	}
	b.ReportMetric(1e3*(processorSeconds(b)-before)/float64(b.N), "cpu-ms/op")
}

// TestRefinedMarketIsWorthMost: on small clusters no other combination of options is worth more than the one that the knapsack finds in a pool, and none
// of the pools gives more than it has.
func TestRefinedMarketIsWorthMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &market{}
		for range rapid.IntRange(1, 2).Draw(t, "pools") {
			m.pools = append(m.pools, pool{free: rapid.IntRange(1, 6).Draw(t, "free")})
		}
		for range rapid.IntRange(1, 4).Draw(t, "jobs") {
			b := &bidder{chosen: nowhere, floor: nowhere}
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
			if b.chosen != nowhere {
				used[b.options[b.chosen].pool] += b.options[b.chosen].devices
				worth += b.options[b.chosen].value
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
func mostWorth(m *market, job int, used []int) float64 {
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

// TestSwitchyardTriesLargerBatches: a batch that is not much worse by the fit, and larger than all that have run, is tried, but not one beyond twice
// as large; once it was as slow as the fit said, the batch goes back.
func TestSwitchyardTriesLargerBatches(t *testing.T) {
	job := Job{
		Limits: &Limits{BaseBatch: 64, MaxBatch: 1024, MinLocal: 8, MaxLocal: 256}, Noise: &train.Efficiency{Variance: 1.5, Square: 1, BaseBatch: 64},
	}
	l := &lesson{}
	best := func(local int, seconds float64) int {
		l.add(Seen{Config: train.Config{Workers: 4, Nodes: 1, LocalBatch: local}, StepSeconds: seconds, SyncSeconds: 0.1})
		l.fit()
		c := newSpeedCurve(&gang{candidate: &candidate{Job: job}}, "")
		c.correct(l)
		c.tried = l.largest()
		_, b := c.best(&gang{candidate: &candidate{Job: job}}, 4, 1)
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

// TestSwitchyardKnowsFasterDevices: one signature has run on two models of device; of another that has run on the first alone it is expected that
// the second is as much faster.
func TestSwitchyardKnowsFasterDevices(t *testing.T) {
	b := &book{Chapters: map[string]*chapter{}, curves: map[curveKey]*speedCurve{}}
	learn := func(signature, model string, seconds float64) {
		b.learn(&gang{candidate: &candidate{Job: Job{Signature: signature, Seen: []Seen{{Model: model, Config: train.Config{Workers: 1, Nodes: 1, LocalBatch: 16}, StepSeconds: seconds}}}}})
	}
	stranger := &gang{candidate: &candidate{Job: Job{Signature: "new", Limits: &Limits{BaseBatch: 16, MaxBatch: 64, MinLocal: 16, MaxLocal: 64}}}}
	learn("new", "slow", 1)
	faster := func() float64 {
		clear(b.curves)
		for _, l := range b.Chapters["new"].Models {
			l.fit()
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
