package records

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// A gang spans nodes that one executor serves.
func TestNodesOfSeveralExecutorsKeepGangsApart(t *testing.T) {
	pods := func(id train.NodeID) train.Node { return train.Node{ID: id, Backend: train.BackendKubernetes} }
	many := []train.Node{pods("a"), pods("b")}
	for i := range mostRealms {
		many = append(many, train.Node{ID: train.NodeID(fmt.Sprint("n", i))})
	}
	for _, c := range []struct {
		name              string
		nodes             []train.Node
		oneNode, oneRealm bool
	}{
		{"none", nil, true, false},
		{"Kubernetes", []train.Node{pods("a"), pods("b")}, false, false},
		{"two machines", []train.Node{{ID: "a"}, {ID: "b"}}, true, false},
		{"a machine as two nodes", []train.Node{{ID: "a"}, {ID: "a2", Machine: "a"}}, false, false},
		{"a machine beside it", []train.Node{{ID: "a"}, {ID: "a2", Machine: "a"}, {ID: "b"}}, false, true},
		{"a machine beside a node of Kubernetes", []train.Node{{ID: "a"}, pods("b")}, true, false},
		{"a machine beside Kubernetes", []train.Node{{ID: "a"}, pods("b"), pods("c")}, false, true},
		{"many machines beside Kubernetes", many, true, false},
	} {
		if oneNode, oneRealm := spread(c.nodes); oneNode != c.oneNode || oneRealm != c.oneRealm {
			t.Errorf("%s: a gang is kept on one node: %t, want %t; in one realm: %t, want %t", c.name, oneNode, c.oneNode, oneRealm, c.oneRealm)
		}
	}
}

// TestAStopThatIsNotHeard: an attempt that was asked to leave before its code could hear it goes on, so it keeps its
// devices. Once it can be asked, it is on its way out.
func TestAStopThatIsNotHeard(t *testing.T) {
	job := train.Job{ID: "j", State: train.StateRunning}
	attempt := train.Attempt{Job: "j", Number: 1, Phase: train.PhaseRunning, Node: "n", Devices: []train.DeviceID{"cpu:0"}, Stop: train.StopPreempt}
	for _, spoke := range []bool{false, true} {
		r := Records{
			Jobs: slices.Values([]*train.Job{&job}), Nodes: slices.Values([]train.Node(nil)), Attempts: map[string]train.Attempt{"j": attempt},
			Reports: map[string]train.AttemptReport{"j.1": {Job: "j", Attempt: 1, Spoke: spoke}},
		}
		s := r.State(time.Unix(1000, 0), train.Plan{}, false, state.State{})
		if len(s.Jobs) != 1 || s.Jobs[0].Running == nil || s.Jobs[0].Running.StopPending != spoke {
			t.Errorf("spoke %v: %+v", spoke, s.Jobs)
		}
	}
}

// TestATrialOfMicroBatches: while micro-batches are tried, and for a moment after, the steps of an attempt do not show
// how fast it is.
func TestATrialOfMicroBatches(t *testing.T) {
	const now = 1000
	job, reason := train.Job{ID: "j", State: train.StateRunning}, train.Reason{Code: "Settled"}
	attempt := train.Attempt{Job: "j", Number: 2, Phase: train.PhaseRunning, Node: "n", Devices: []train.DeviceID{"gpu:1"}}
	for _, c := range []struct {
		name     string
		attempt  int
		since    int64
		settled  train.Reason
		measured bool
	}{
		{"a trial", 2, now - 60, train.Reason{}, false}, {"settled a moment ago", 2, now - 1, reason, false}, {"settled", 2, now - 60, reason, true}, {"of the attempt before", 1, now - 60, train.Reason{}, true},
	} {
		r := Records{
			Jobs: slices.Values([]*train.Job{&job}), Nodes: slices.Values([]train.Node(nil)), Attempts: map[string]train.Attempt{"j": attempt},
			Reports: map[string]train.AttemptReport{"j.2": {Job: "j", Attempt: 2, EpochsDone: 3}},
			Tunings: map[string]train.Tuning{train.TuningKey("n", "gpu:1"): {
				Since: time.Unix(c.since, 0), Settled: c.settled, Tenants: []train.TunedJob{{Job: "j", Attempt: c.attempt, MicroBatch: 1, Accumulation: 2}},
			}},
		}
		if got := r.State(time.Unix(now, 0), train.Plan{}, false, state.State{}).Jobs[0].Measured(); got != c.measured {
			t.Errorf("%s: measured is %v, want %v", c.name, got, c.measured)
		}
	}
}

// TestAResizedJob: an attempt keeps what it has, and the wish of the edited spec goes with it. An experiment comes
// first.
func TestAResizedJob(t *testing.T) {
	for _, c := range []struct{ least, most, has, wants int }{{1, 1, 1, 0}, {1, 4, 2, 0}, {2, 2, 1, 2}, {1, 1, 2, 1}, {3, 4, 2, 3}} {
		spec := train.Spec{MinDevices: c.least, MaxDevices: c.most, Strategy: train.StrategyAllReduce}
		attempt := train.Attempt{Job: "j", Number: 1, Phase: train.PhaseRunning, Node: "n", Devices: []train.DeviceID{"cpu:0", "cpu:1"}[:c.has]}
		r := Records{
			Jobs: slices.Values([]*train.Job{{ID: "j", State: train.StateRunning, Spec: spec}}), Nodes: slices.Values([]train.Node(nil)),
			Attempts: map[string]train.Attempt{"j": attempt},
		}
		if j := r.State(time.Unix(1000, 0), train.Plan{}, false, state.State{}).Jobs[0]; j.WantsDevices != c.wants || j.Resized != (c.wants > 0) {
			t.Errorf("%+v: wants %d, resized %v", c, j.WantsDevices, j.Resized)
		}
		r.Settings = map[string]train.Setting{"j": {Values: map[string]float64{train.SettingDevices: 4}}}
		if j := r.State(time.Unix(1000, 0), train.Plan{}, false, state.State{}).Jobs[0]; j.WantsDevices != 4 || j.Resized {
			t.Errorf("%+v: the experiment wants 4, found %d, resized %v", c, j.WantsDevices, j.Resized)
		}
	}
}

// A quota of energy is one of the month, and counts what was used in it.
func TestAQuotaOfEnergyEndsWithTheMonth(t *testing.T) {
	now := time.Date(2026, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)) // in January by UTC
	r := Records{
		Jobs: slices.Values([]*train.Job(nil)), Nodes: slices.Values([]train.Node(nil)),
		Tenants:   map[string]access.Tenant{"a=b": {Name: "a.b", Bounds: access.Bounds{EnergyKWh: new(2.0)}}, "b": {Name: "b"}, "c": {Name: "c", Bounds: access.Bounds{EnergyKWh: new(1e12)}}},
		Spendings: map[string]contract.Spending{"tenant.a=b": {Tenant: "a.b", Month: "2027-01", Energy: 2 * unit.KilowattHour}, "tenant.c": {Month: "2026-12", Energy: 5}},
	}
	got := r.State(now, train.Plan{}, false, state.State{EnergyQuotas: map[string]state.EnergyQuota{"old": {}}}).EnergyQuotas
	next := time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	if q := got["a.b"]; len(got) != 2 || !q.Reached(now) || q.Reached(next) || !q.Until.Equal(next) {
		t.Errorf("%+v", got)
	}
	if q := got["c"]; q.Used != 0 || q.Allowed <= 0 || q.Reached(now) {
		t.Errorf("what was used last month counts, or the largest quota is none: %+v", q)
	}
}

// A tenant's record goes before the setting of the installation.
func TestTenantsHaveQuotasOfTheirOwn(t *testing.T) {
	r := Records{
		Jobs: slices.Values([]*train.Job(nil)), Nodes: slices.Values([]train.Node(nil)),
		Tenants: map[string]access.Tenant{"a": {Name: "a", Bounds: access.Bounds{Devices: new(2)}}, "b": {Name: "b"}},
	}
	settings := map[string]int{"a": 8, "b": 4}
	if got := r.State(time.Unix(1000, 0), train.Plan{}, false, state.State{Quotas: settings}).Quotas; got["a"] != 2 || got["b"] != 4 || settings["a"] != 8 {
		t.Errorf("quotas %v of settings %v", got, settings)
	}
}
