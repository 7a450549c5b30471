package deploy

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestAgentsAnswerProbes checks the agent with the component probing: the cluster has one node, so there is no other to
// probe.
func TestAgentsAnswerProbes(t *testing.T) {
	s := apply(t, "lab")
	nodes, err := bus.OpenKV(s.ctx, s.bus, contract.Nodes)
	s.must(err)
	var agent train.Node
	s.until("the agent reports where it answers", func() bool {
		entries, err := nodes.List(s.ctx)
		for _, e := range entries {
			agent = e.Value
		}
		return err == nil && len(agent.Probes) == 1
	})
	address := s.kubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	if want := strings.TrimSpace(address) + ":7482"; agent.Probes[0] != want {
		t.Errorf("it answers at %s, want %s", agent.Probes[0], want)
	}
}
