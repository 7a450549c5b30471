package jobs

import (
	"context"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The planner decides on the node as Kubernetes and its operators see it: what runs on a cordoned node stays, and
// nothing comes; what runs on a drained one saves and leaves.
func TestNodesThatTakeNoJobs(t *testing.T) {
	const endless = 1_000_000
	y := newYard(t)
	y.start("planner")
	t.Cleanup(func() {
		_, _ = y.cluster.Kubectl(context.Background(), "uncordon", "node1")
		_, _ = y.cluster.Kubectl(context.Background(), "taint", "nodes", "node1", "team-")
	})
	one := func(s *train.Spec) { s.MaxDevices = 1 }
	y.submit("stays", endless, 4, one)
	y.running("stays", 1)

	y.kubectl("cordon", "node1")
	y.until("the cordon in the list of nodes", func() bool {
		return strings.Contains(y.switchyard("node", "list"), "node node1 is cordoned in Kubernetes")
	})
	y.submit("comes", endless, 4, one)
	y.awaitReason("comes", train.NodeCordoned, "node node1 is cordoned in Kubernetes")
	y.kubectl("uncordon", "node1")
	y.running("comes", 1)
	if a := y.running("stays", 1); a.Stop != train.StopNone {
		t.Errorf("the attempt on the cordoned node was asked to leave: %s", a.Stop)
	}

	y.job("comes", "two epochs", epochs(2))
	y.kubectl("taint", "nodes", "node1", "team=b:NoSchedule")
	y.until("the taint in the list of nodes", func() bool { return strings.Contains(y.switchyard("node", "list"), "team=b:NoSchedule") })
	y.switchyard("node", "drain", "node1", "--reason", "new fans")
	for _, id := range []train.JobID{"stays", "comes"} {
		y.awaitReason(id, train.NodeDraining, "node node1 is being drained by")
		y.attempt(id, "has left", func(a train.Attempt) bool { return a.Number == 1 && a.Outcome == train.OutcomePreempted })
	}
	y.cancel("stays")
	y.cancel("comes")
	y.nothingLeft()
}
