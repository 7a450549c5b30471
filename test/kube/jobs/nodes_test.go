package jobs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	y.kubectl("taint", "nodes", "node1", "team-")
	y.switchyard("node", "resume", "node1")
	y.running("stays", 2)
	y.devcluster("stop", "kubelet")
	t.Cleanup(func() { _, _ = y.cluster.Run(context.Background(), "start", "kubelet") })
	y.submit("late", endless, 4, one)
	y.awaitReason("late", train.NodeNotReady, "node node1 is not ready: ")
	y.devcluster("start", "kubelet")
	for _, id := range []train.JobID{"stays", "comes", "late"} {
		y.cancel(id)
	}
	y.nothingLeft()
}

// Three jobs are killed on one GPU in turn: it is set aside, the next jobs go to the other one, and an operator ends
// it.
func TestAGPUThatLosesJobsIsSetAside(t *testing.T) {
	y := newYard(t)
	y.start("planner")
	y.switchyard("node", "cordon", "node1", "--device", "gpu:1")
	for _, id := range []train.JobID{"a", "b", "c"} {
		y.submit(id, 1_000_000, 4, func(s *train.Spec) { s.MaxDevices = 1 })
		y.running(id, 1)
		y.killProcesses(id)
		y.job(id, "recovering", func(j train.Job) bool { return j.Recoveries == 1 })
		if id != "c" {
			y.cancel(id)
		}
	}
	y.awaitReason("c", train.NodeCordoned, "gpu:0 of node node1 is set aside until ")
	if list := y.switchyard("node", "list"); !strings.Contains(list, "3 jobs were lost on it within an hour: a (killed by SIGKILL), b (killed by SIGKILL), c (killed by SIGKILL)") {
		t.Errorf("node list:\n%s", list)
	}
	y.switchyard("node", "resume", "node1", "--device", "gpu:1")
	if a := y.running("c", 2); a.Devices[0] != "gpu:1" {
		t.Errorf("attempt 2 runs on %s, want the other GPU", a.Devices)
	}
	y.kill("planner")
	y.start("planner")
	y.submit("d", 2, 1, func(s *train.Spec) { s.MaxDevices = 1 })
	y.awaitReason("d", "WaitingForDevices", "gpu:0 of node node1 is set aside until ")
	y.switchyard("node", "resume", "node1", "--device", "gpu:0")
	y.state("d", train.StateSucceeded)
	y.cancel("c")
	y.nothingLeft()
}

// A pod of another namespace holds a GPU: nothing is planned there until it is gone.
func TestAGPUThatAnotherPodHolds(t *testing.T) {
	y := newYard(t)
	y.start("planner")
	node, err := y.node()
	y.must(err)
	y.pause("notebook", node.Devices[0].Resource, node.Devices[0].Units)
	y.until("the holder in the list of nodes", func() bool {
		return strings.Contains(y.switchyard("node", "list"), "gpu:0 of node node1 is held by pod default/notebook")
	})
	two := func(s *train.Spec) { s.MinDevices, s.MaxDevices = 2, 2 }
	y.submit("one", 1_000_000, 4, func(s *train.Spec) { s.MaxDevices = 1 })
	if a := y.running("one", 1); a.Devices[0] != "gpu:1" {
		t.Errorf("it runs on %s, want the GPU that nobody holds", a.Devices)
	}
	y.cancel("one")
	y.submit("two", 1_000_000, 4, two)
	y.awaitReason("two", train.DeviceHeld, "gpu:0 of node node1 is held by pod default/notebook")
	y.kubectl("delete", "pod", "notebook", "-n", "default")
	y.running("two", 1)
	y.cancel("two")
	y.nothingLeft()
}

// killProcesses kills the processes of a job's attempt as the kernel would for lack of memory, without a word to
// Kubernetes.
func (y *yard) killProcesses(id train.JobID) {
	y.t.Helper()
	mark := train.MarkVariable + "=" + string(id) + "/"
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		data, _ := os.ReadFile(path)
		if slices.ContainsFunc(strings.Split(string(data), "\x00"), func(v string) bool { return strings.HasPrefix(v, mark) }) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			y.must(err)
			y.must(syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}
