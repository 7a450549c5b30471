package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// serversState has eight devices and two jobs of tenant t1 with parameter servers that want all. Quota and budget leave
// it two devices.
func serversState(quota bool) State {
	s := State{Now: time.Unix(1000, 0), Tuning: Tuning{AtEpochs: true}}
	for i := range 2 {
		n := train.Node{ID: train.NodeID(fmt.Sprint("n", i)), Cores: 16}
		for k := range 4 {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprint("gpu:", k)), Kind: train.KindGPU, BusyWatts: 100, IdleWatts: 20})
		}
		s.Nodes = append(s.Nodes, n)
	}
	if quota {
		s.Quotas = map[string]int{"t1": 2}
	} else {
		s.PowerBudgetWatts = 8*20 + 2*80
	}
	for _, id := range []train.JobID{"a", "b"} {
		s.Jobs = append(s.Jobs, Job{ID: id, Spec: train.Spec{
			Tenant: "t1", MinDevices: 1, MaxDevices: 4, BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 10,
			Strategy: train.StrategyParameterServer, ParameterServers: &train.ServersSpec{Max: 4, Cores: 1},
		}})
	}
	return s
}

// TestQuotaAndBudgetHoldWithParameterServers: whatever any job of any tenant asks for.
func TestQuotaAndBudgetHoldWithParameterServers(t *testing.T) {
	for name, policy := range Policies() {
		for _, quota := range []bool{true, false} {
			s := serversState(quota)
			if quota { // another tenant's parameter servers are no reason, either
				s.Jobs = append(s.Jobs, s.Jobs[0])
				s.Jobs[2].ID, s.Jobs[2].Spec.Tenant = "c", "t2"
				s.Jobs[0].Spec.Strategy, s.Jobs[0].Spec.ParameterServers = "", nil
			}
			given := 0
			for _, a := range Decide(s, policy).Allocations {
				if a.Job != "c" {
					given += len(train.AllDevices(a.Places()))
				}
				if j := s.Jobs[slices.IndexFunc(s.Jobs, func(j Job) bool { return j.ID == a.Job })]; j.Spec.ParameterServers != nil && a.ServerCount() == 0 {
					t.Errorf("%s: %s has no parameter server", name, a.Job)
				}
			}
			if given != 2 {
				t.Errorf("%s (quota: %v): %d devices given, 2 are allowed", name, quota, given)
			}
		}
	}
}

// TestAJobIsNotRestartedTooOften plays hours in which jobs learn and come and go: those of one priority take turns, and
// no job is made to leave oftener within an hour than is allowed.
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

// BenchmarkServers has 4,000 jobs of up to 25 tasks on 16,000 nodes, as Optimus's own figure of scale has.
func BenchmarkServers(b *testing.B) {
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
