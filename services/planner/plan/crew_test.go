package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// transfer is the time of one exchange of gradients by Optimus's model (section 4.2), in units of model size over bandwidth: a server exchanges its share with
// every worker on another node, a worker with every server there, each over one link.
func transfer(parts []roles) float64 {
	all := roles{}
	for _, p := range parts {
		all = all.plus(p)
	}
	slowest := 0.0
	for _, p := range parts {
		if p.servers > 0 {
			slowest = math.Max(slowest, float64(all.workers-p.workers)/float64(all.servers))
		}
		if p.workers > 0 {
			slowest = math.Max(slowest, float64(all.servers-p.servers)/float64(all.servers))
		}
	}
	return slowest
}

// fastest is the least transfer time of all the ways to put a crew on nodes of so many devices and cores, each of which has workers and servers or nothing.
func fastest(left roles, nodes, devices, cores int, parts []roles) float64 {
	if nodes == 0 {
		if left != (roles{}) {
			return math.Inf(1)
		}
		return transfer(parts)
	}
	best := math.Inf(1)
	for w := 0; w <= min(left.workers, devices); w++ {
		for p := 0; p <= min(left.servers, cores); p++ {
			if (w > 0) != (p > 0) {
				continue
			}
			best = min(best, fastest(roles{left.workers - w, left.servers - p}, nodes-1, devices, cores, append(parts, roles{w, p})))
		}
	}
	return best
}

// TestSpreadIsAsFastAsAnyPlacement compares the theorem with all placements that it speaks of, wherever it gives equal parts.
func TestSpreadIsAsFastAsAnyPlacement(t *testing.T) {
	compared := 0
	for _, size := range []struct{ devices, cores int }{{2, 2}, {3, 2}, {4, 4}} {
		for w := 1; w <= 8; w++ {
			for p := 1; p <= 4; p++ {
				s := State{}
				for i := range 4 {
					n := train.Node{ID: train.NodeID(fmt.Sprint("n", i)), Cores: size.cores}
					for d := range size.devices {
						n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprint("gpu:", d))})
					}
					s.Nodes = append(s.Nodes, n)
				}
				s.Jobs = []Job{{ID: "x", Spec: train.Spec{Strategy: train.StrategyParameterServer, MaxDevices: w, ParameterServers: &train.ServersSpec{Max: p}}}}
				d := newCrews(s)
				placed := d.spread(d.all[0], roles{w, p}, racks(d.rooms), d.rooms)
				best := fastest(roles{w, p}, 4, size.devices, size.cores, nil)
				if placed == nil {
					if !math.IsInf(best, 1) && w%4 == 0 && p%4 == 0 {
						t.Errorf("%d workers and %d servers find no place on nodes of %+v", w, p, size)
					}
					continue
				}
				var parts []roles
				for _, b := range placed {
					parts = append(parts, b.roles)
				}
				if k := len(parts); w%k != 0 || p%k != 0 {
					continue
				}
				compared++
				if got := transfer(parts); got > best+1e-9 {
					t.Errorf("%d workers and %d servers on nodes of %+v: %v takes %.3f, the best placement %.3f", w, p, size, parts, got, best)
				}
			}
		}
	}
	if compared < 20 {
		t.Errorf("only %d placements compared", compared)
	}
}

// crewDay is a day on which jobs with and without servers come, learn and leave.
type crewDay struct{ day }

func (d *crewDay) turn() {
	d.change()
	for i := range d.state.Nodes {
		d.state.Nodes[i].Cores = 4 + len(d.state.Nodes[i].Devices)
	}
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		if j.Running != nil && j.Spec.Strategy != "" && j.Planned != nil {
			d.learnCrew(j)
		}
		if j.Running == nil && j.Planned == nil && j.Spec.Strategy == "" && d.chance(60) {
			j.Spec.Strategy = train.StrategyParameterServer
			j.Spec.ParameterServers = &train.ServersSpec{Max: d.between(1, 4), Cores: d.between(1, 2), MemoryMiB: int64(d.between(0, 2)) * 1024, Async: d.chance(40)}
			j.Model = nil
		}
	}
}

func (d *crewDay) learnCrew(j *Job) {
	h := curve.History{Kind: j.Spec.SpeedKind()}
	truth := train.Servers{Fixed: d.dice.Float64(), PerShare: d.dice.Float64(), PerWorker: 0.1 * d.dice.Float64(), PerServer: 0.05}
	for range d.between(1, 6) {
		c := train.Config{Workers: d.between(1, 4), Servers: d.between(1, 4), Nodes: 1, LocalBatch: 10}
		h.Steps = append(h.Steps, curve.StepSample{Config: c, StepSeconds: truth.StepSeconds(c, h.Kind == train.SpeedServersAsync)})
	}
	m := curve.Refit(h)
	m.EpochsSeen = j.EpochsDone
	j.Model = &m
}

// follow lets the executor carry out a plan.
func (d *crewDay) follow(p train.Plan) {
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		a, has := p.Find(j.ID)
		if !has {
			j.Planned, j.Running = nil, nil
			continue
		}
		h := &Holding{Node: a.Node, Devices: a.Devices, Parts: a.Parts, Servers: a.Servers}
		if j.Running == nil || j.Planned == nil || !sameParts(j.Planned.places(), h.places()) || !slices.Equal(j.Planned.Servers, h.Servers) {
			j.Running = &Running{Holding: Holding{Node: a.Node, Devices: a.Devices, Parts: a.Parts}}
		}
		j.Planned = h
	}
}

func TestCrewsKeepThePromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &crewDay{day{t: t, dice: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "day"), 2))}}
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			d.turn()
			before, err := json.Marshal(d.state)
			if err != nil {
				t.Fatal(err)
			}
			p := decideCrews(d.state)
			if after, _ := json.Marshal(d.state); string(after) != string(before) {
				t.Fatal("the decision changed the state")
			}
			checkCrews(t, d.state, p)
			checkOrder(t, d.state, p)
			d.follow(p)
			if again := decideCrews(d.state); !slices.EqualFunc(p.Allocations, again.Allocations, sameCrew) {
				t.Fatalf("the plan is changed at once:\n%s\n%s", words(p), words(again))
			}
		}
	})
}

func sameCrew(x, y train.Allocation) bool {
	return x.Job == y.Job && sameParts(x.Places(), y.Places()) && slices.Equal(x.Servers, y.Servers)
}

// checkOrder: the same state in another order gives the same bytes.
func checkOrder(t *rapid.T, s State, p train.Plan) {
	want, _ := json.Marshal(p)
	s.Jobs, s.Nodes = rapid.Permutation(s.Jobs).Draw(t, "jobs"), rapid.Permutation(s.Nodes).Draw(t, "nodes")
	if got, _ := json.Marshal(decideCrews(s)); string(got) != string(want) {
		t.Fatalf("another order gives another plan:\n%s\n%s", want, got)
	}
}

// checkCrews: no node gives more than it has, crews are whole and within their bounds, and everybody is in the plan once with a reason.
func checkCrews(t *rapid.T, s State, p train.Plan) {
	left := map[train.NodeID]*train.Node{}
	given := map[string]bool{}
	for i := range s.Nodes {
		n := s.Nodes[i]
		left[n.ID] = &n
	}
	for _, a := range p.Allocations {
		j := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == a.Job })]
		spec, workers := j.Spec.WithDefaults(), 0
		for _, part := range a.Places() {
			for _, d := range part.Devices {
				known := left[part.Node] != nil && slices.ContainsFunc(left[part.Node].Devices, func(x train.Device) bool { return x.ID == d })
				if key := fmt.Sprint(part.Node, d); !known || given[key] {
					t.Fatalf("%s gets %s, which is gone or another's", a.Job, key)
				} else {
					given[key] = true
				}
				workers++
			}
		}
		withServers := spec.Strategy == train.StrategyParameterServer
		if workers < spec.MinDevices || workers > spec.MaxDevices || withServers != (a.ServerCount() > 0) || withServers && a.ServerCount() > spec.ParameterServers.Max {
			t.Fatalf("%s gets %d workers and %d servers, wants %d to %d and %+v", a.Job, workers, a.ServerCount(), spec.MinDevices, spec.MaxDevices, spec.ParameterServers)
		}
		for _, part := range a.Servers {
			n := left[part.Node]
			n.Cores -= part.Count * spec.ParameterServers.Cores
			if n.Memory > 0 {
				n.Memory -= unit.Bytes(part.Count) * unit.Bytes(spec.ParameterServers.MemoryMiB) * unit.MiB
			}
			if n.Cores < 0 || n.Memory < 0 {
				t.Fatalf("node %s gives more than it has", part.Node)
			}
		}
		if a.Reason.Code == "" || a.Reason.Message == "" {
			t.Fatalf("%s has no reason", a.Job)
		}
	}
	for _, j := range s.Jobs {
		_, has := p.Find(j.ID)
		waits := slices.IndexFunc(p.Waiting, func(w train.Waiting) bool { return w.Job == j.ID && w.Blockers[0].Message != "" }) >= 0
		if (has || waits) == j.CancelRequested || has && waits {
			t.Fatalf("%s (cancelled: %v): has %v, waits %v", j.ID, j.CancelRequested, has, waits)
		}
	}
}

// TestAJobIsNotRestartedTooOften plays hours in which jobs learn and come and go: those of one priority take turns, and no job is made to leave oftener within
// an hour than is allowed.
func TestAJobIsNotRestartedTooOften(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const allowed = 3
		d := &day{t: t, dice: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "day"), 3))}
		d.state.Tuning = Tuning{MaxRestartsPerHour: allowed, RestartSeconds: 1, Hysteresis: 0.001, OneNode: true}
		d.state.Nodes = []train.Node{{ID: "a"}, {ID: "b"}}
		for i := range 6 {
			for n := range d.state.Nodes {
				d.state.Nodes[n].Devices = append(d.state.Nodes[n].Devices, train.Device{ID: train.DeviceID(fmt.Sprint("cpu:", i))})
			}
		}
		left := map[train.JobID][]time.Time{}
		now := time.Unix(1000, 0)
		for range rapid.IntRange(20, 80).Draw(t, "rounds") {
			now = now.Add(time.Duration(d.between(20, 400)) * time.Second)
			d.state.Now = now
			d.hour(left)
			before := slices.Clone(d.state.Jobs)
			p := Decide(d.state, Optimus{})
			for _, j := range before {
				a, has := p.Find(j.ID)
				if j.Running == nil || has && a.Node == j.Running.Node && train.SameDevices(a.Devices, j.Running.Devices) {
					continue
				}
				if left[j.ID] = append(left[j.ID], now); j.RecentRestarts >= allowed {
					t.Fatalf("%s leaves for the %d. time within an hour: %s", j.ID, j.RecentRestarts+1, words(p))
				}
			}
			d.carryOut(p)
		}
	})
}

// hour lets jobs come, learn something new each time and go.
func (d *day) hour(left map[train.JobID][]time.Time) {
	if d.chance(40) && len(d.state.Jobs) < 8 {
		j := d.job()
		j.Priority, j.Spec.MaxEpochs = 50, 10_000
		d.state.Jobs = append(d.state.Jobs, j)
	}
	d.state.Jobs = slices.DeleteFunc(d.state.Jobs, func(Job) bool { return d.chance(4) })
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		j.RecentRestarts = 0
		for _, at := range left[j.ID] {
			if d.state.Now.Sub(at) < time.Hour {
				j.RecentRestarts++
			}
		}
		if r := j.Running; r != nil {
			r.Spoke, r.Epochs, r.Seconds = true, r.Epochs+1, r.Seconds+100
			d.learn(j, len(r.Devices))
		}
	}
}

func (d *day) carryOut(p train.Plan) {
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		a, has := p.Find(j.ID)
		if !has {
			j.Planned, j.Running = nil, nil
			continue
		}
		h := &Holding{Node: a.Node, Devices: a.Devices}
		if j.Running == nil || j.Running.Node != a.Node || !train.SameDevices(j.Running.Devices, a.Devices) {
			j.Running = &Running{Holding: *h}
		}
		j.Planned = h
	}
}

// BenchmarkCrews has 4,000 jobs of up to 25 tasks on 16,000 nodes, as Optimus's own figure of scale has.
func BenchmarkCrews(b *testing.B) {
	var s State
	for i := range 16_000 {
		n := train.Node{ID: train.NodeID(fmt.Sprintf("n%05d", i)), Cores: 8}
		for d := range 4 {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", d)), Kind: train.KindGPU})
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range 4000 {
		j := Job{ID: train.JobID(fmt.Sprintf("j%05d", i)), SubmittedAt: time.Unix(int64(i), 0), Priority: 50, Spec: train.Spec{
			BatchSize: 10, TrainingSetSize: 100_000, MaxEpochs: 20, MaxDevices: 13, Strategy: train.StrategyParameterServer,
			ParameterServers: &train.ServersSpec{Max: 12},
		}}
		h := curve.History{Kind: train.SpeedServersSync}
		truth := train.Servers{Fixed: 0.1, PerShare: 0.1 + float64(i%7)/10, PerWorker: 0.001, PerServer: 0.001}
		for _, c := range []train.Config{{Workers: 1, Servers: 1}, {Workers: 4, Servers: 1}, {Workers: 1, Servers: 4}, {Workers: 4, Servers: 4}, {Workers: 2, Servers: 1}} {
			c.Nodes, c.LocalBatch = 1, 10
			h.Steps = append(h.Steps, curve.StepSample{Config: c, StepSeconds: truth.StepSeconds(c, false)})
		}
		m := curve.Refit(h)
		j.Model = &m
		s.Jobs = append(s.Jobs, j)
	}
	tasks := 0
	for b.Loop() {
		tasks = 0
		for _, a := range Decide(s, Optimus{}).Allocations {
			tasks += a.ServerCount()
			for _, p := range a.Places() {
				tasks += len(p.Devices)
			}
		}
	}
	b.ReportMetric(float64(tasks), "tasks")
}
