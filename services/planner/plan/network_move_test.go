package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/feasible"
)

// between is a link between two nodes.
func between(l Link, from, to train.NodeID) Link {
	l.ID, l.From, l.To = "bad", []train.NodeID{from}, []train.NodeID{to}
	return l
}

func TestAGangBetweenAttemptsIsPutOffADeadLink(t *testing.T) {
	s := running(smallNetwork(4), 10_000, "n1", "n2")
	s.Jobs[0].Running = nil
	s.Links = []Link{across(1)}
	a := Decide(s, Switchyard{}).Allocations[0]
	if got := nodesOf(a); got == "n1 n2" || a.Reason.Code != feasible.LinkDegraded || !strings.Contains(a.Reason.Message, "loses 100 % of the packets") {
		t.Errorf("on %s: %+v", got, a.Reason)
	}
}

func TestAGangLeavesASlowLinkWhereThatPays(t *testing.T) {
	for _, c := range []struct {
		name  string
		delay float64
		moves bool
	}{{"one that doubles each step", 2, true}, {"one that is hardly felt", 0.0001, false}} {
		t.Run(c.name, func(t *testing.T) {
			s := running(smallNetwork(4), 1000, "n1", "n2")
			s.Links = []Link{between(Link{DelaySeconds: c.delay}, "n2", "n1")}
			a := Decide(s, Switchyard{}).Allocations[0]
			if got := nodesOf(a); (got != "n1 n2") != c.moves {
				t.Errorf("on %s: %+v", got, a.Reason)
			}
			if c.moves && !strings.Contains(a.Reason.Message, "the link bad takes 2e+03 ms longer than usual") {
				t.Errorf("said: %s", a.Reason.Message)
			}
		})
	}
}

func TestANewGangRatherTakesNodesBetweenWhichLinksAreWell(t *testing.T) {
	for name, fault := range map[string]Link{"loss below the bound": {Loss: 0.0009}, "delay": {DelaySeconds: 0.09}} {
		s := smallNetwork(4)
		s.Jobs = []Job{gangOf("gang", 4)}
		usual := nodesOf(Decide(s, Switchyard{}).Allocations[0])
		first, second, _ := strings.Cut(usual, " ")
		s.Links = []Link{between(fault, train.NodeID(second), train.NodeID(first))}
		for _, p := range []Policy{Switchyard{}, FIFO{}} {
			a := Decide(s, p).Allocations[0]
			if got := nodesOf(a); got == usual || len(a.Places()) != 2 {
				t.Errorf("%s, %s: on %s", name, p.Name(), got)
			}
		}
	}
}

func TestASlowDeviceIsNotLeftForALossyLink(t *testing.T) {
	s := running(smallNetwork(4), 10_000, "n0", "n1")
	s.Jobs[0].Slow = []train.Straggler{{Node: "n1", Device: "gpu:0", Rank: 2, Slowdown: 2}}
	full := gangOf("full", 2)
	full.Planned = &Holding{Node: "n2", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}
	full.Running = &Running{Holding: *full.Planned, Seconds: 1000, Epochs: 2, Spoke: true}
	s.Jobs = append(s.Jobs, full)
	place := func() string {
		for _, a := range Decide(s, Switchyard{}).Allocations {
			if a.Job == "gang" {
				return nodesOf(a)
			}
		}
		return ""
	}
	if got := place(); got != "n0 n3" {
		t.Fatalf("with a good network the gang is on %s", got)
	}
	s.Links = []Link{between(Link{Loss: 0.2}, "n3", "n0")}
	if got := place(); got != "n0 n1" {
		t.Errorf("for a slow device the gang goes across a lossy link: %s", got)
	}
}

// A gang over a link that loses packets leaves it, and its co-runner stays: its devices are freed for nobody else.
func TestAGangLeavesALossyLinkAndItsCoRunner(t *testing.T) {
	s := running(smallNetwork(4), 10_000, "n1", "n2")
	for i := range s.Nodes {
		for k := range s.Nodes[i].Devices {
			s.Nodes[i].Devices[k].Kind, s.Nodes[i].Devices[k].Memory = train.KindGPU, 16*unit.GiB
		}
	}
	gang := &s.Jobs[0]
	share := func(j *Job, gib int64, h Holding) {
		j.Spec.AllowSharing, j.Spec.EstimatedMemoryMiB, h.Memory = true, gib<<10, unit.Bytes(gib)*unit.GiB
		h.Parts = slices.Clone(h.Parts)
		for i := range h.Parts {
			h.Parts[i].Memory = h.Memory
		}
		j.Planned, j.Running = &h, &Running{Holding: h, Seconds: 1000, Epochs: 2, Spoke: true}
	}
	share(gang, 8, *gang.Planned)
	beside := gangOf("beside", 1)
	share(&beside, 4, Holding{Node: "n2", Devices: []train.DeviceID{"gpu:0"}, Beside: gang.ID})
	s.Jobs = append(s.Jobs, beside)
	s.Links = []Link{between(Link{Loss: 0.2}, "n2", "n1")}
	for _, p := range []Policy{Switchyard{}, FIFO{}} {
		made := Decide(s, p)
		moved, _ := made.Find("gang")
		stays, has := made.Find("beside")
		if got := nodesOf(moved); got == "n1 n2" || moved.Reason.Code != feasible.LinkDegraded || !has || stays.Node != "n2" || stays.Beside != "" {
			t.Errorf("%s: the gang is on %s, its co-runner on %s beside %q:\n%s", p.Name(), got, stays.Node, stays.Beside, words(made))
		}
	}
}
