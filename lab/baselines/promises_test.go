package baselines

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// day is a cluster on which gangs come, learn and end.
type day struct {
	dice  *rand.Rand
	state plan.State
	trace Trace
	born  int
}

func newDay(seed uint64) *day {
	d := &day{trace: Trace{}, dice: rand.New(rand.NewPCG(seed, 2))}
	models := []string{"a"}
	if d.dice.IntN(2) == 0 {
		models = append(models, "b")
	}
	for i := range 1 + d.dice.IntN(6) {
		n := train.Node{ID: train.NodeID(fmt.Sprintf("n%d", i))}
		model, busy := models[d.dice.IntN(len(models))], float64(50+25*d.dice.IntN(8))
		idle := busy / float64(2+d.dice.IntN(8))
		for k := range 1 + d.dice.IntN(8) {
			n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("gpu:%d", k)), Kind: train.KindGPU, Model: model, BusyWatts: busy, IdleWatts: idle})
		}
		d.state.Nodes = append(d.state.Nodes, n)
	}
	d.state.Now = time.Unix(1000, 0)
	if d.dice.IntN(3) == 0 {
		d.state.Quotas = map[string]int{"t0": d.dice.IntN(5), "t1": 1 + d.dice.IntN(8)}
	}
	if d.dice.IntN(3) == 0 {
		d.state.PowerBudgetWatts = float64(100 + d.dice.IntN(1500))
	}
	return d
}

func (d *day) change() {
	d.state.Now = d.state.Now.Add(time.Minute)
	for range d.dice.IntN(4) {
		d.born++
		d.state.Jobs = append(d.state.Jobs, d.job())
	}
	d.state.Jobs = slices.DeleteFunc(d.state.Jobs, func(plan.Job) bool { return d.dice.IntN(10) == 0 })
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		if j.Planned == nil {
			continue
		}
		n, nodes := len(j.Planned.Devices), 1
		for _, p := range j.Planned.Parts {
			n, nodes = n+len(p.Devices), len(j.Planned.Parts)
		}
		j.DeviceSeconds += 60 * float64(n) * float64(1+d.dice.IntN(100))
		j.EpochsDone = min(j.EpochsDone+1, j.Spec.MaxEpochs)
		told := &d.trace[j.ID].Agent
		told.Noise = &train.Efficiency{Variance: 10 * d.dice.Float64(), Square: 1, BaseBatch: 8}
		step := 0.1 + d.dice.Float64()
		told.Ran = append(told.Ran, train.Ran{
			Config: train.Config{Workers: n, Nodes: nodes, LocalBatch: 4 + d.dice.IntN(9)}, Device: "a", StepSeconds: step, SyncSeconds: step / 4,
		})
		if d.dice.IntN(3) == 0 {
			told.Speeds = map[string]train.Speed{"a": Pollux{}.Learn(told.Ran)}
		}
	}
}

func (d *day) job() plan.Job {
	j := plan.Job{
		ID: train.JobID(fmt.Sprintf("j%03d", d.born)), SubmittedAt: d.state.Now.Add(-time.Duration(d.dice.IntN(60)) * time.Second),
		Spec: train.Spec{
			Command: []string{fmt.Sprint(d.dice.IntN(3))}, MinDevices: 1, MaxDevices: 1 + d.dice.IntN(16), MaxEpochs: 10, TrainingSetSize: 1000,
			Tenant: fmt.Sprint("t", d.dice.IntN(3)), BatchSize: 8, GlobalBatchSize: 8,
			AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 256, MinPerDevice: 4, MaxPerDevice: 32},
		},
		Priority: 50 + 20*(d.dice.IntN(4)/3), Model: &train.Model{},
	}
	remaining := 1000 * d.dice.Float64()
	o := &Told{
		Devices: 1 + d.dice.IntN(12), RemainingSteps: func(int) float64 { return remaining },
		Truth: policy.Truth{
			StepTime: func(cfg train.Config, _ string) (step, sync float64) { return 1 / float64(cfg.Workers), 0.1 },
			Gain:     func(globalBatch, _ int) float64 { return float64(globalBatch) / 8 },
		},
		Agent: Agent{Limits: func(model string) state.Limits { return state.LimitsOn(model, j.Spec) }},
	}
	for n := range 1 + d.dice.IntN(16) {
		o.StepSeconds = append(o.StepSeconds, (0.5+d.dice.Float64())/float64(n+1))
	}
	d.trace[j.ID] = o
	return j
}

// apply carries the plan out.
func (d *day) apply(p train.Plan) {
	d.state.Jobs = slices.Clone(d.state.Jobs)
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		j.Planned, j.Running = nil, nil
		if a, ok := p.Find(j.ID); ok {
			h := plan.Holding{Node: a.Node, Devices: a.Devices, Parts: a.Parts}
			j.Planned, j.Running = &h, &plan.Running{Holding: h, Spoke: true, Epochs: 1, Seconds: 60}
		}
	}
	d.state.Memory = p.Memory
}

// TestBaselinesKeepThePromises plays random days with each policy for traces.
func TestBaselinesKeepThePromises(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			named, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				d, policy := newDay(rapid.Uint64().Draw(t, "day")), named
				if reader, reads := policy.(Reader); reads {
					policy = reader.Read(d.trace)
				}
				rounds := rapid.IntRange(1, 8).Draw(t, "rounds")
				if name == "pollux" {
					rounds = 1 + rounds/4 // a decision takes a while
				}
				for range rounds {
					d.change()
					p := plan.Decide(d.state, policy)
					checkGangs(t, d.state, p, policy, d.trace)
					checkBounds(t, d.state, p)
					checkSameBytes(t, d.state, p, policy)
					d.apply(p)
					// Pollux searches at random, and may find something better.
					if name != "pollux" {
						checkStable(t, p, plan.Decide(d.state, policy))
					}
				}
			})
		})
	}
}

// checkStable: after a plan was carried out, the next one neither stops nor moves a job.
func checkStable(t *rapid.T, p, again train.Plan) {
	for _, a := range p.Allocations {
		if next, found := again.Find(a.Job); !found || fmt.Sprint(next.Places()) != fmt.Sprint(a.Places()) {
			t.Fatalf("the plan was carried out, and the next one gives %s %v instead of %v", a.Job, next.Places(), a.Places())
		}
	}
}

// checkSameBytes: the order of the nodes does not matter.
func checkSameBytes(t *rapid.T, s plan.State, p train.Plan, policy plan.Policy) {
	want, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	s.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
	if got, _ := json.Marshal(plan.Decide(s, policy)); string(got) != string(want) {
		t.Fatalf("the same state gives another plan:\n%s\n%s", want, got)
	}
}

// checkGangs: each device exists and is given once, a gang has devices of one model, each job is in the plan once.
func checkGangs(t *rapid.T, s plan.State, p train.Plan, policy plan.Policy, trace Trace) {
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
				t.Fatalf("%s has parts %v: one part belongs in node and devices, and no part is empty", a.Job, a.Parts)
			}
			if len(a.Parts) > 1 {
				spanning[part.Node]++
			}
			for _, d := range part.Devices {
				key := string(part.Node) + "/" + string(d)
				is, exists := models[key]
				if !exists || given[key] || n > 0 && is != model {
					t.Fatalf("%s gets %s of model %q (exists: %v, given before: %v) with devices of model %q", a.Job, key, is, exists, given[key], model)
				}
				given[key], model = true, is
				n++
			}
		}
		checkGangSize(t, s.Jobs[slices.IndexFunc(s.Jobs, func(j plan.Job) bool { return j.ID == a.Job })], n, policy, trace[a.Job])
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

// checkGangSize: policies that do not resize give all that was asked for or nothing, the others stay in their limits.
func checkGangSize(t *rapid.T, j plan.Job, n int, policy plan.Policy, told *Told) {
	most, exactly := told.Devices, true
	switch policy.Name() {
	case "optimus":
		most, exactly = max(len(told.StepSeconds), 1), false
	case "pollux", "switchyard", "switchyard-oracle":
		most, exactly = j.Spec.MaxDevices, false
	case "drf":
		exactly = false
	}
	if n > most || exactly && n < most {
		t.Fatalf("%s gets %d devices, and may have %d (exactly: %v)", j.ID, n, most, exactly)
	}
}

// checkBounds: no tenant holds more than its quota, no plan draws more than the power budget.
func checkBounds(t *rapid.T, s plan.State, p train.Plan) {
	tenants, watts, draw := map[train.JobID]string{}, map[string]float64{}, 0.0
	for _, j := range s.Jobs {
		tenants[j.ID] = j.Spec.Tenant
	}
	for _, n := range s.Nodes {
		for _, d := range n.Devices {
			watts[string(n.ID)+"/"+string(d.ID)] = d.BusyWatts - d.IdleWatts
			draw += d.IdleWatts
		}
	}
	least := draw
	holds := map[string]int{}
	for _, a := range p.Allocations {
		for _, part := range a.Places() {
			for _, d := range part.Devices {
				draw += watts[string(part.Node)+"/"+string(d)]
				holds[tenants[a.Job]]++
			}
		}
	}
	for tenant, quota := range s.Quotas {
		if holds[tenant] > quota {
			t.Fatalf("%s holds %d devices, its quota is %d", tenant, holds[tenant], quota)
		}
	}
	if budget := s.PowerBudgetWatts; budget > 0 && draw > max(budget, least)+1e-3 {
		t.Fatalf("the plan draws %.1f W, the budget is %.1f W", draw, budget)
	}
}
