package jobs

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The planner decides on the node as Kubernetes and its operators see it: what runs on a cordoned node stays, and
// nothing comes; what runs on a drained one saves and leaves. All goes on when the node is back.
func TestNodesThatTakeNoJobs(t *testing.T) {
	const endless = 1_000_000
	y := newYard(t)
	y.start("planner")
	one := func(s *train.Spec) { s.MaxDevices = 1 }
	y.submit("stays", endless, 4, one)
	y.running("stays", 1)

	y.kubectl("cordon", "node1")
	y.until("the cordon in the list of nodes", func() bool { return strings.Contains(y.switchyard("node", "list"), "node node1 is cordoned in Kubernetes") })
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
	y.switchyard("node", "resume", "node1")
	y.awaitReason("comes", train.NodeTainted, "node node1 has taints that jobs do not tolerate: team=b:NoSchedule")
	y.kubectl("taint", "nodes", "node1", "team-")
	for _, id := range []train.JobID{"stays", "comes"} {
		y.running(id, 2)
		if at := y.ledger(id).Began(2); at < 2 {
			t.Errorf("job %s began again after epoch %d, want its checkpoint", id, at)
		}
		y.cancel(id)
	}
	y.nothingLeft()
}

// A node on which a job found no room is kept from it for a while, with the reason that the scheduler gave, rather than
// tried again and again.
func TestAStartWithoutRoomIsNotRepeatedAtOnce(t *testing.T) {
	y := newYard(t, "--pod-schedule-limit=3s")
	y.start("planner")
	resource := y.squat()
	y.submit("crowded", 3, 1, func(s *train.Spec) { s.MinDevices, s.MaxDevices = 2, 2 })
	y.awaitReason("crowded", train.StartFailed, "its last start on node node1 failed: no node has room for pod")
	y.awaitReason("crowded", train.StartFailed, "Insufficient "+resource)
	y.kubectl("delete", "pod", "squatter", "-n", y.namespace, "--grace-period=0", "--force")
	y.state("crowded", train.StateSucceeded)
	y.nothingLeft()
}
