package diff

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestServersFollowThePlan: an attempt starts with exactly the parameter servers of the plan, and leaves when a newer
// plan wants others, also on the same devices.
func TestServersFollowThePlan(t *testing.T) {
	on := func(n, m int) []train.ServerPart {
		var parts []train.ServerPart
		for i, count := range []int{n, m} {
			if count > 0 {
				parts = append(parts, train.ServerPart{Node: []train.NodeID{"n", "m"}[i], Count: count})
			}
		}
		return parts
	}
	s := State{
		Realm: Realm{Realm: train.Realm{Backend: train.BackendKubernetes}, Nodes: map[train.NodeID]train.Node{"n": {}, "m": {}}}, Planned: true,
		Plan: train.Plan{Generation: 1, Allocations: []train.Allocation{{Job: "a", Parts: []train.Part{
			{Node: "n", Devices: []train.DeviceID{"gpu:0"}}, {Node: "m", Devices: []train.DeviceID{"gpu:0"}},
		}}}},
		Jobs:     map[train.JobID]train.Job{"a": {ID: "a", Spec: train.Spec{Strategy: train.StrategyParameterServer}, State: train.StateQueued}},
		Attempts: map[train.JobID]train.Attempt{},
	}
	if got := Actions(s, Limits{}); len(got) != 0 {
		t.Fatalf("a plan without servers: %+v", got)
	}
	s.Plan.Allocations[0].Servers = on(1, 2)
	started := Actions(s, Limits{})
	if len(started) != 1 || started[0].Kind != Start || !train.SameServers(started[0].Servers, on(1, 2)) {
		t.Fatalf("%+v, want a start with 1 and 2 servers", started)
	}
	a := train.Attempt{Job: "a", Number: 1, Backend: train.BackendKubernetes, Phase: train.PhaseRunning, Generation: 1}
	a.SetPlaces(started[0].Places)
	s.Plan.Generation = 2
	for _, c := range []struct {
		name    string
		runs    []train.ServerPart
		planned []train.ServerPart
		stops   bool
	}{
		{"the same", on(1, 2), on(1, 2), false},
		{"one less", on(1, 2), on(1, 1), true},
		{"elsewhere", on(1, 2), on(2, 1), true},
		{"none on a node", on(1, 2), on(0, 3), true},
	} {
		a.SetServers(c.runs)
		s.Attempts["a"], s.Plan.Allocations[0].Servers = a, c.planned
		got := Actions(s, Limits{})
		if stops := len(got) == 1 && got[0].Kind == RequestStop && got[0].Cause == train.StopRescale; stops != c.stops || !stops && len(got) > 0 {
			t.Errorf("%s: %+v, want a stop: %v", c.name, got, c.stops)
		}
	}
	// An attempt of an older version has the number of its servers only: they were spread in turn.
	a.Servers, a.ServerCount = nil, 3
	s.Attempts["a"], s.Plan.Allocations[0].Servers = a, on(2, 1)
	if got := Actions(s, Limits{}); len(got) != 0 {
		t.Errorf("an older attempt that runs as planned: %+v", got)
	}
}
