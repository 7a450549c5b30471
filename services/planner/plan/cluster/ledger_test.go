package cluster

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// TestABudgetIsNotLostToRounding: five devices of 100 W, a sixth of it when idle, and just enough for two of them to
// work.
func TestABudgetIsNotLostToRounding(t *testing.T) {
	n := train.Node{ID: "a"}
	for _, id := range []train.DeviceID{"gpu:0", "gpu:1", "gpu:2", "gpu:3", "gpu:4"} {
		n.Devices = append(n.Devices, train.Device{ID: id, BusyWatts: 100, IdleWatts: 100.0 / 6})
	}
	s := New(&state.State{Nodes: []train.Node{n}, PowerBudgetWatts: 250, Jobs: []state.Job{{ID: "x"}, {ID: "y"}}}, func(*state.Job, train.Spec) (int, int) { return 1, 5 })
	x, y := s.Gangs[0], s.Gangs[1]
	two := Placement{Parts: []Part{{Count: 2}}}
	if got := s.Ledger.Allowed(x, s.Nodes[0].Watts); got != 2 || !s.Ledger.Covers(x, two) {
		t.Fatalf("the budget is enough for %d devices, want 2", got)
	}
	mark := s.Ledger.Mark()
	if !s.Ledger.Take(x, two) || s.Ledger.Allowed(y, s.Nodes[0].Watts) != 0 || s.Ledger.Take(y, Placement{Parts: []Part{{Count: 1}}}) {
		t.Fatal("more devices than the budget are given")
	}
	if s.Ledger.Undo(mark); s.Ledger.Allowed(y, s.Nodes[0].Watts) != 2 || !x.Got.Empty() || s.Ledger.Taken() != 0 {
		t.Fatal("what was undone is missing")
	}
}
