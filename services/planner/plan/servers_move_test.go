package plan

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// withServers gives the first job of a state as many parameter servers as it has nodes, one on each, and the nodes some
// cores for them.
func withServers(s State, cores int) State {
	j := &s.Jobs[0]
	j.Spec.Strategy, j.Spec.ParameterServers = train.StrategyParameterServer, &train.ServersSpec{Max: 2, Cores: 2}
	var at []train.ServerPart
	for _, p := range j.Running.Places() {
		at = append(at, train.ServerPart{Node: p.Node, Count: 1})
	}
	j.Planned.Servers, j.Running.Servers = at, at
	for i := range s.Nodes {
		s.Nodes[i].Cores = cores
	}
	return s
}

// A job with parameter servers leaves a lossy link with its workers and its servers.
func TestAJobWithParameterServersIsMovedOffALossyLink(t *testing.T) {
	for name, policy := range map[string]Policy{"switchyard": Switchyard{}, "optimus": Optimus{}, "fifo": FIFO{}} {
		s := withServers(running(smallNetwork(4), 10_000, "n1", "n2"), 4)
		s.Links = []Link{across(0.2)}
		a := Decide(s, policy).Allocations[0]
		if got := nodesOf(a); got == "n1 n2" || !strings.Contains(a.Reason.Message, "the link up loses 20 % of the packets") {
			t.Errorf("%s: on %s: %+v", name, got, a.Reason)
		}
		if a.ServerCount() != 2 {
			t.Errorf("%s: %d servers", name, a.ServerCount())
		}
		for _, server := range a.Servers {
			if !strings.Contains(nodesOf(a), string(server.Node)) {
				t.Errorf("%s: a server is left behind on %s, the workers are on %s", name, server.Node, nodesOf(a))
			}
		}
	}
}

// It stays where it is if the others leave no cores for its servers.
func TestServersMoveOnlyWhereThereIsRoomForThem(t *testing.T) {
	s := withServers(running(smallNetwork(4), 10_000, "n1", "n2"), 3)
	s.Links = []Link{across(0.2)}
	for i := range s.Nodes {
		if id := s.Nodes[i].ID; id == "n0" || id == "n3" {
			s.Nodes[i].Cores = 1
		}
	}
	if a := Decide(s, Switchyard{}).Allocations[0]; nodesOf(a) != "n1 n2" {
		t.Errorf("on %s: %+v", nodesOf(a), a.Reason)
	}
}

// A step waits for a link twice, however many nodes there are, and not once around a ring.
func TestServersAreWaitedForTwiceAStep(t *testing.T) {
	for _, c := range []struct {
		delay float64
		moves bool
	}{{2, true}, {0.0001, false}} {
		s := withServers(running(smallNetwork(4), 1000, "n1", "n2"), 4)
		s.Links = []Link{between(Link{DelaySeconds: c.delay}, "n2", "n1")}
		if a := Decide(s, Switchyard{}).Allocations[0]; (nodesOf(a) != "n1 n2") != c.moves {
			t.Errorf("delay of %g s: on %s: %+v", c.delay, nodesOf(a), a.Reason)
		}
	}
}

func TestANewJobWithServersRatherTakesNodesBetweenWhichLinksAreWell(t *testing.T) {
	s := smallNetwork(4)
	s.Jobs = []Job{gangOf("gang", 4)}
	s.Jobs[0].Spec.Strategy, s.Jobs[0].Spec.ParameterServers = train.StrategyParameterServer, &train.ServersSpec{Max: 2, Cores: 1}
	for i := range s.Nodes {
		s.Nodes[i].Cores = 8
	}
	usual := nodesOf(Decide(s, Switchyard{}).Allocations[0])
	first, second, _ := strings.Cut(usual, " ")
	s.Links = []Link{between(Link{DelaySeconds: 0.09}, train.NodeID(second), train.NodeID(first))}
	if a := Decide(s, Switchyard{}).Allocations[0]; nodesOf(a) == usual || len(a.Places()) != 2 || a.ServerCount() != 2 {
		t.Errorf("on %s with %d servers", nodesOf(a), a.ServerCount())
	}
}
