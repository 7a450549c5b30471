package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/feasible"
)

// smallNetwork is a cluster of nodes with two devices each.
func smallNetwork(nodes int) State {
	s := State{Now: time.Unix(10_000, 0)}
	for i := range nodes {
		s.Nodes = append(s.Nodes, train.Node{ID: train.NodeID(fmt.Sprintf("n%d", i)), Devices: []train.Device{
			{ID: "gpu:0", Kind: train.KindGPU, Model: "a"}, {ID: "gpu:1", Kind: train.KindGPU, Model: "a"},
		}})
	}
	return s
}

func gangOf(id string, devices int) Job {
	return Job{
		ID: train.JobID(id), SubmittedAt: time.Unix(1000, 0),
		Spec: train.Spec{MinDevices: devices, MaxDevices: devices, MaxEpochs: 10, EstimatedHours: 2, TrainingSetSize: 1000, BatchSize: 10},
	}
}

// across is a link between the first two nodes and the others.
func across(loss float64) Link {
	return Link{ID: "up", Loss: loss, From: []train.NodeID{"n0", "n1"}, To: []train.NodeID{"n2", "n3"}}
}

func nodesOf(a train.Allocation) string {
	var names []string
	for _, p := range a.Places() {
		names = append(names, string(p.Node))
	}
	return strings.Join(names, " ")
}

func TestGangsKeepOffLossyLinks(t *testing.T) {
	for _, p := range []Policy{Switchyard{}, FIFO{}} {
		s := smallNetwork(4)
		s.Links = []Link{across(0.05)}
		// A job of one device is in the way: the emptiest nodes are now on both sides.
		s.Jobs = []Job{gangOf("small", 1), gangOf("wide", 4)}
		s.Jobs[0].Priority = 60
		made := Decide(s, p)
		for _, a := range made.Allocations {
			if got := nodesOf(a); a.Job == "wide" && got != "n0 n1" && got != "n2 n3" {
				t.Errorf("%s: the gang is on %s", p.Name(), got)
			}
			if a.Job == "wide" && !strings.Contains(a.Reason.Message, "the link up loses 5 % of the packets") {
				t.Errorf("%s: %q does not name the link", p.Name(), a.Reason.Message)
			}
		}
		if len(made.Allocations) != 2 {
			t.Errorf("%s: %d jobs got devices: %+v", p.Name(), len(made.Allocations), made.Waiting)
		}
	}
}

func TestAGangThatIsTooWideForTheGoodLinksSaysWhy(t *testing.T) {
	s := smallNetwork(4)
	s.Links, s.Jobs = []Link{across(0.05)}, []Job{gangOf("wide", 6)}
	made := Decide(s, Switchyard{})
	if len(made.Waiting) != 1 || made.Waiting[0].Blockers[0].Code != feasible.LinkDegraded {
		t.Fatalf("got %+v", made)
	}
	if want := "needs 6 devices on nodes between which packets arrive, and there are 4: the link up loses 5 % of the packets"; made.Waiting[0].Blockers[0].Message != want {
		t.Errorf("said: %s", made.Waiting[0].Blockers[0].Message)
	}
	s.Links = []Link{across(0.0005)}
	if made = Decide(s, Switchyard{}); len(made.Allocations) != 1 {
		t.Errorf("a link below the bound keeps the gang from running: %+v", made.Waiting)
	}
}

// running has a gang run on two nodes, with the given seconds of it left.
func running(s State, seconds float64, nodes ...train.NodeID) State {
	j := gangOf("gang", 4)
	h := Holding{}
	for _, n := range nodes {
		h.Parts = append(h.Parts, train.Part{Node: n, Devices: []train.DeviceID{"gpu:0", "gpu:1"}})
	}
	j.EpochsDone, j.Planned = 2, &h
	j.Spec.EstimatedHours, j.Priority = seconds/3600, 50
	j.Running = &Running{Holding: h, Seconds: 1000, Epochs: 2, Spoke: true}
	s.Jobs = append(s.Jobs, j)
	return s
}

func TestAGangLeavesALossyLinkWhereThatPays(t *testing.T) {
	for _, c := range []struct {
		name    string
		loss    float64
		seconds float64
		moves   bool
	}{
		{"a long training", 0.05, 10_000, true},
		{"a training that is nearly done", 0.05, 4, false},
		{"a loss that is hardly felt", 0.0011, 10_000, false},
		{"a loss below the bound", 0.0005, 10_000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := smallNetwork(4)
			s.Links = []Link{across(c.loss)}
			made := Decide(running(s, c.seconds, "n1", "n2"), Switchyard{})
			if len(made.Allocations) != 1 {
				t.Fatalf("got %+v", made)
			}
			a := made.Allocations[0]
			got := nodesOf(a)
			if moved := got == "n0 n1" || got == "n1 n0" || got == "n2 n3" || got == "n3 n2"; moved != c.moves || moved != (a.Reason.Code == feasible.LinkDegraded) {
				t.Errorf("on %s: %+v", got, a.Reason)
			}
		})
	}
}

func TestAGangWithoutAnywhereElseToGoStays(t *testing.T) {
	s := smallNetwork(4)
	s.Links = []Link{across(0.05)}
	s = running(s, 10_000, "n1", "n2")
	for _, n := range []string{"n0", "n3"} {
		j := gangOf("on-"+n, 2)
		j.Priority = 10
		j.Planned = &Holding{Node: train.NodeID(n), Devices: []train.DeviceID{"gpu:0", "gpu:1"}}
		j.Running = &Running{Holding: *j.Planned, Seconds: 1000, Epochs: 2, Spoke: true}
		s.Jobs = append(s.Jobs, j)
	}
	for _, a := range Decide(s, Switchyard{}).Allocations {
		if a.Job == "gang" && nodesOf(a) != "n1 n2" {
			t.Errorf("the gang goes to %s", nodesOf(a))
		}
	}
}

func TestAGangPaysForPacketsThatItLosesBelowTheBound(t *testing.T) {
	s := smallNetwork(2)
	s.Jobs = []Job{gangOf("gang", 4)}
	clean := Decide(s, Switchyard{}).Allocations[0].RemainingSeconds
	s.Links = []Link{{ID: "a", Loss: 0.0008, From: []train.NodeID{"n0"}, To: []train.NodeID{"n1"}}, {ID: "b", Loss: 0.0005, From: []train.NodeID{"n1"}, To: []train.NodeID{"n0"}}}
	want := clean / ((1 - 0.0008) * (1 - 0.0005))
	if got := Decide(s, Switchyard{}).Allocations[0].RemainingSeconds; clean == 0 || got < want*0.999999 || got > want*1.000001 {
		t.Errorf("%v s left with losses, %v without, want %v", got, clean, want)
	}
}

func TestNewGangsNeverCrossLinksAboveTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nodes = 8
		s := smallNetwork(nodes)
		some := rapid.Custom(func(t *rapid.T) []train.NodeID {
			var ids []train.NodeID
			for i := range nodes {
				if rapid.Bool().Draw(t, "in") {
					ids = append(ids, train.NodeID(fmt.Sprintf("n%d", i)))
				}
			}
			return ids
		})
		for i := range rapid.IntRange(1, 3).Draw(t, "links") {
			s.Links = append(s.Links, Link{ID: fmt.Sprint(i), Loss: 0.01, From: some.Draw(t, "from"), To: some.Draw(t, "to")})
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
			s.Jobs = append(s.Jobs, gangOf(fmt.Sprint("j", i), rapid.IntRange(1, 10).Draw(t, "devices")))
		}
		for _, a := range Decide(s, Switchyard{}).Allocations {
			for _, l := range s.Links {
				if crosses(a, l) {
					t.Fatalf("%s is on %s, across %s", a.Job, nodesOf(a), l.ID)
				}
			}
		}
	})
}

func TestAGangWaitsForSlowLinks(t *testing.T) {
	s := smallNetwork(3)
	s.Jobs = []Job{gangOf("gang", 6)}
	clean := Decide(s, Switchyard{}).Allocations[0].RemainingSeconds
	s.Links = []Link{
		{ID: "a", DelaySeconds: 0.002, From: []train.NodeID{"n0"}, To: []train.NodeID{"n1"}},
		{ID: "b", DelaySeconds: 0.005, From: []train.NodeID{"n1"}, To: []train.NodeID{"n0"}},
	}
	made := Decide(s, Switchyard{})
	if len(made.Allocations) != 1 {
		t.Fatalf("a slow link keeps the gang from running: %+v", made.Waiting)
	}
	const epochs, steps = 10, 16 // of 60 samples, of 1000
	want := clean + epochs*steps*2*(3-1)*0.005
	if got := made.Allocations[0].RemainingSeconds; clean == 0 || got < want-1e-6 || got > want+1e-6 {
		t.Errorf("%v s left over slow links, %v over others, want %v", got, clean, want)
	}
}

// crosses says whether what the parts of a gang send each other crosses a link.
func crosses(a train.Allocation, l Link) bool {
	for i, x := range a.Places() {
		for k, y := range a.Places() {
			if i != k && slices.Contains(l.From, x.Node) && slices.Contains(l.To, y.Node) {
				return true
			}
		}
	}
	return false
}
