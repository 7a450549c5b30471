package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

// fakeNodes starts a control plane with simulated nodes and pods, and writes the nodes' records as their agents would.
func fakeNodes(t testing.TB, n, gpus int) *yard {
	t.Helper()
	if cluster == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	fake, err := lab.Start(t.Context(), filepath.Join(t.TempDir(), "cluster"), "--no-kubelet", "--kwok-nodes",
		fmt.Sprint(n), "--kwok-gpus", fmt.Sprint(gpus))
	t.Cleanup(func() { _ = fake.Down() })
	if err != nil {
		t.Fatal(err)
	}
	y := newYardOn(t, fake, "--pod-tolerate=kwok.x-k8s.io/node", "--pod-schedule-limit=2s")
	kv, err := bus.OpenKV(y.ctx, y.bus, contract.Nodes)
	y.must(err)
	for i := range n {
		node := train.Node{
			ID: train.NodeID(fmt.Sprintf("kwok-%d", i)), Name: fmt.Sprintf("kwok-%d", i), Backend: train.BackendKubernetes, JobAPI: "10.0.0.1:1",
		}
		for g := range gpus {
			node.Devices = append(node.Devices, train.Device{
				ID: train.DeviceID(fmt.Sprintf("gpu:%d", g)), Kind: train.KindGPU, UUID: fmt.Sprintf("GPU-%d", g), Resource: resourceOf(g), Units: 16, Memory: 16 * unit.GiB,
			})
		}
		_, err := kv.Swap(y.ctx, string(node.ID), node, 0)
		y.must(err)
	}
	return y
}

// resourceOf returns the scheduler's name of a GPU of a fake node.
func resourceOf(gpu int) string { return fmt.Sprintf("switchyard.dev/gpu-kwok-%d", gpu) }

// gang returns an allocation of the GPUs of some nodes, one each.
func gang(id train.JobID, nodes ...int) train.Allocation {
	a := train.Allocation{Job: id}
	for _, n := range nodes {
		a.Parts = append(a.Parts, train.Part{Node: train.NodeID(fmt.Sprintf("kwok-%d", n)), Devices: []train.DeviceID{"gpu:0"}})
	}
	return a
}

func (y *yard) pods(id train.JobID) []string {
	y.t.Helper()
	return strings.Fields(y.kubectl("get", "pods", "-n", y.namespace, "-l", "switchyard.dev/job="+string(id), "-o",
		`jsonpath={range .items[*]}{.metadata.name}@{.spec.nodeName} {end}`))
}

// A gang over several nodes runs as a whole or not at all.
func TestGangOverNodes(t *testing.T) {
	y := fakeNodes(t, 4, 1)
	wide := func(s *train.Spec) { s.MinDevices, s.MaxDevices, s.Launch = 3, 3, train.LaunchPerNode }
	y.submit("whole", 5, 1, wide)
	y.plan(gang("whole", 2, 0, 1))
	if a := y.running("whole", 1); len(a.Parts) != 3 || a.Node != "" {
		t.Errorf("attempt %+v", a)
	}
	if got := y.pods("whole"); !slices.Equal(got, []string{"whole-1-0@kwok-2", "whole-1-1@kwok-0", "whole-1-2@kwok-1"}) {
		t.Errorf("pods %q", got)
	}
	// One is deleted by hand: all end, and all begin again.
	y.kubectl("delete", "pod", "whole-1-1", "-n", y.namespace, "--wait=false")
	y.running("whole", 2)
	y.until("the pods of the first attempt are gone", func() bool {
		return slices.Equal(y.pods("whole"), []string{"whole-2-0@kwok-2", "whole-2-1@kwok-0", "whole-2-2@kwok-1"})
	})
	y.cancel("whole")
	y.nothingLeft()

	// One node has no room: nothing of the gang stays, and the reason is reported.
	y.apply(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"squatter"},"spec":{"nodeName":"kwok-1","tolerations":[{"operator":"Exists"}],
		"containers":[{"name":"c","image":"x","resources":{"limits":{"switchyard.dev/gpu-kwok-0":"1"}}}]}}`)
	y.submit("squeezed", 5, 1, wide)
	y.plan(gang("squeezed", 0, 1, 2))
	y.job("squeezed", "the reason", func(j train.Job) bool {
		return slices.ContainsFunc(j.History, func(c train.Change) bool {
			return c.Reason == "Unschedulable" && strings.Contains(c.Message, "Insufficient")
		})
	})
	e, err := y.attempts.Get(y.ctx, "squeezed")
	y.must(err)
	if !e.Value.StartedAt.IsZero() {
		t.Errorf("part of a gang counts as started: %+v", e.Value)
	}
	y.kubectl("delete", "pod", "squatter", "-n", y.namespace, "--grace-period=0", "--force")
	last := y.attempt("squeezed", "it runs", func(a train.Attempt) bool { return a.Phase == train.PhaseRunning })
	if j := y.job("squeezed", "it runs", func(j train.Job) bool { return j.Attempt == last.Number }); j.Recoveries > 0 {
		t.Errorf("%d recoveries, want none for want of room", j.Recoveries)
	}
	if got := len(y.pods("squeezed")); got != 3 {
		t.Errorf("%d pods, want three", got)
	}
	y.cancel("squeezed")
	y.nothingLeft()
}

// A parameter-server job has a scheduler, servers and workers; when the workers are done the rest is ended and the job
// has succeeded.
func TestParameterServers(t *testing.T) {
	y := fakeNodes(t, 2, 1)
	y.submit("servers", 5, 1, func(s *train.Spec) {
		s.Strategy, s.ParameterServers, s.MinDevices, s.MaxDevices, s.Launch = train.StrategyParameterServer, &train.ServersSpec{Max: 1}, 2, 2, train.LaunchPerNode
	})
	planned := gang("servers", 0, 1)
	planned.Servers = []train.ServerPart{{Node: "kwok-1", Count: 1}}
	y.plan(planned)
	y.running("servers", 1)
	if got := y.pods("servers"); !slices.Contains(got, "servers-1-1@kwok-1") {
		t.Errorf("pods %q, want the server where it was planned", got)
	}
	roles := y.kubectl("get", "pods", "-n", y.namespace, "-l", "switchyard.dev/job=servers", "-o",
		`jsonpath={range .items[*]}{.metadata.labels.switchyard\.dev/role} {end}`)
	if roles != "scheduler ps worker worker" {
		t.Errorf("roles %q", roles)
	}
	for rank := range 2 {
		y.kubectl("annotate", "pod", fmt.Sprintf("servers-1-%d", rank+2), "-n", y.namespace, "pod-end.switchyard.dev/after=1s")
	}
	y.state("servers", train.StateSucceeded)
	y.nothingLeft()
}
