package plan

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestABudgetIsNotLostToRounding: five devices of 100 W, a sixth of it when idle, and just enough for two of them to work.
func TestABudgetIsNotLostToRounding(t *testing.T) {
	n := train.Node{ID: "a"}
	for range 5 {
		n.Devices = append(n.Devices, train.Device{BusyWatts: 100, IdleWatts: 100.0 / 6})
	}
	a := newAllowance(State{Nodes: []train.Node{n}, PowerBudgetWatts: 250})
	each := newNode(n).watts
	if got := a.most("", each); got != 2 || !a.covers("", 2, 2*each) {
		t.Fatalf("the budget is enough for %d devices, want 2", got)
	}
	a.take("", 2, each)
	if got := a.most("", each); got != 0 || a.covers("", 1, each) {
		t.Fatalf("%d devices more than the budget", got)
	}
}
