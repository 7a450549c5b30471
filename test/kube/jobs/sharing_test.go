package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// The planner decides: one job has a GPU to itself, two jobs share the other one, and a third that does not fit waits
// with the reason. It runs as soon as one of the two has ended.
func TestJobsShareAGPU(t *testing.T) {
	const endless = 1_000_000
	y := newYard(t)
	y.start("planner")
	sharing := func(gib int64) func(*train.Spec) {
		return func(s *train.Spec) { s.MaxDevices, s.AllowSharing, s.EstimatedMemoryMiB = 1, true, gib<<10 }
	}
	y.submit("whole", endless, 4, func(s *train.Spec) { s.MaxDevices = 1 })
	y.running("whole", 1)
	y.submit("large", endless, 4, sharing(10))
	y.running("large", 1)
	y.submit("small", endless, 4, sharing(5))
	large, small := y.running("large", 1), y.running("small", 1)
	if !train.SameDevices(large.Devices, small.Devices) {
		t.Errorf("large is on %v, small on %v, want them together", large.Devices, small.Devices)
	}
	y.submit("third", 3, 1, sharing(4))
	waits := y.job("third", "the reason", func(j train.Job) bool { return j.Reason == "WaitingForMemory" })
	if want := "needs 4.0 GiB of GPU memory on one device; the most that is free on a device that may be shared is 1.0 GiB"; !strings.HasPrefix(waits.Message, want) {
		t.Errorf("it waits: %q, want %q", waits.Message, want)
	}

	// Kubernetes accounts for the shares of the plan, and the containers know theirs.
	for pod, units := range map[string]string{"whole-1-0": "", "large-1-0": "10", "small-1-0": "5"} {
		if limit := y.units(pod, large.Devices[0]); limit != units {
			t.Errorf("pod %s asks for %q units of the shared GPU, want %q", pod, limit, units)
		}
	}
	y.job("large", "two epochs beside another", epochs(2))
	y.job("small", "two epochs beside another", epochs(2))

	y.cancel("large")
	done := y.state("third", train.StateSucceeded)
	if a := y.attempt("third", "its record", func(train.Attempt) bool { return true }); !train.SameDevices(a.Devices, small.Devices) || a.Memory == 0 {
		t.Errorf("third ran on %s of %v, want it beside small on %v", a.Memory, a.Devices, small.Devices)
	}
	if done.Attempt != 1 {
		t.Errorf("third took %d attempts", done.Attempt)
	}
	for _, id := range []train.JobID{"small", "whole"} {
		if j := y.job(id, "it runs", func(j train.Job) bool { return j.State == train.StateRunning }); j.Attempt != 1 {
			t.Errorf("%s was moved: attempt %d", id, j.Attempt)
		}
		y.cancel(id)
	}
	y.nothingLeft()
}

// A job that uses more of a GPU than its part stops at its epoch's end and continues elsewhere with what it needs, in
// as many units of the other GPU; its co-runners train on. One of them is killed and starts again, without effect on
// the others.
func TestAJobThatOutgrowsItsPartIsMoved(t *testing.T) {
	const endless = 1_000_000
	y := newYard(t)
	y.start("planner")
	sharing := func(partGiB, usedGiB int64) func(*train.Spec) {
		return func(s *train.Spec) {
			s.MaxDevices, s.AllowSharing, s.EstimatedMemoryMiB = 1, true, partGiB<<10
			s.Command = append(s.Command, "-memory-mib", strconv.FormatInt(usedGiB<<10, 10))
		}
	}
	y.submit("whole", endless, 4, func(s *train.Spec) { s.MaxDevices = 1 })
	y.running("whole", 1)
	y.submit("modest", endless, 4, sharing(8, 6))
	modest := y.running("modest", 1)
	y.submit("greedy", endless, 4, sharing(4, 12))
	y.job("greedy", "the reason why it leaves", func(j train.Job) bool { return j.Reason == "MemoryOutgrown" && len(j.Warnings) == 1 })
	y.submit("next", endless, 4, sharing(7, 6))
	next := y.running("next", 1)
	if !train.SameDevices(next.Devices, modest.Devices) {
		t.Errorf("next is on %v, modest on %v, want them together", next.Devices, modest.Devices)
	}

	y.cancel("whole")
	greedy := y.running("greedy", 2)
	if greedy.StartedEpochs == 0 || train.SameDevices(greedy.Devices, modest.Devices) || greedy.Enforcement != train.EnforcedByAdvice {
		t.Errorf("greedy goes on after epoch %d on %v (%s), want it on the other GPU than %v", greedy.StartedEpochs,
			greedy.Devices, greedy.Enforcement, modest.Devices)
	}
	if units := y.units("greedy-2-0", greedy.Devices[0]); units != "14" {
		t.Errorf("greedy asks for %q units, want 14 for 12 GiB and a tenth", units)
	}
	if out := y.describe("greedy"); !strings.Contains(out, "uses 12.0 GiB of gpu:") || !strings.Contains(out, "advisory: ") {
		t.Errorf("describe greedy:\n%s", out)
	}

	y.kubectl("delete", "pod", "modest-1-0", "-n", y.namespace, "--wait=false", "--grace-period=0")
	before := map[train.JobID]int{}
	for _, id := range []train.JobID{"greedy", "next"} {
		before[id] = y.job(id, "it runs", func(j train.Job) bool { return j.State == train.StateRunning }).EpochsDone
	}
	again := y.running("modest", 2)
	if again.Memory == 0 || again.Memory > modest.Memory || !train.SameDevices(again.Devices, modest.Devices) {
		t.Errorf("modest goes on with %s of %v, had %s of %v", again.Memory, again.Devices, modest.Memory, modest.Devices)
	}
	for id, attempt := range map[train.JobID]int{"greedy": 2, "next": 1} {
		j := y.job(id, "it trains on", func(j train.Job) bool { return j.EpochsDone > before[id]+1 })
		if j.Attempt != attempt || j.Recoveries != 0 {
			t.Errorf("%s is disturbed: attempt %d, %d recoveries", id, j.Attempt, j.Recoveries)
		}
	}
	for _, id := range []train.JobID{"modest", "greedy", "next"} {
		y.cancel(id)
	}
	y.nothingLeft()
}

// units returns a pod's request for a GPU.
func (y *yard) units(pod string, device train.DeviceID) string {
	y.t.Helper()
	node, err := y.node()
	y.must(err)
	resource := ""
	for _, d := range node.Devices {
		if d.ID == device {
			resource = strings.ReplaceAll(d.Resource, ".", `\.`)
		}
	}
	return y.kubectl("get", "pod", pod, "-n", y.namespace, "-o", "jsonpath={.spec.containers[0].resources.limits."+resource+"}")
}

// Two gangs over the same nodes share a GPU of each: each pod asks for its gang's part of the GPU of its node. One pod
// is deleted: its gang begins again beside the other, which goes on.
func TestGangsOverNodesShareGPUs(t *testing.T) {
	y := fakeNodes(t, 2, 1)
	gangs := map[train.JobID]int64{"large": 10, "small": 5}
	var planned []train.Allocation
	for id, gib := range gangs {
		y.submit(id, 5, 1, func(s *train.Spec) {
			s.MinDevices, s.MaxDevices, s.Launch, s.AllowSharing, s.EstimatedMemoryMiB = 2, 2, train.LaunchPerNode, true, gib<<10
		})
		a := gang(id, 0, 1)
		a.Memory = unit.Bytes(gib) * unit.GiB
		for i := range a.Parts {
			a.Parts[i].Memory = a.Memory
		}
		planned = append(planned, a)
	}
	y.plan(planned...)
	limit := "jsonpath={.spec.containers[0].resources.limits." + strings.ReplaceAll(resourceOf(0), ".", `\.`) + "}@{.spec.nodeName}"
	asks := func(attempt map[train.JobID]int) {
		t.Helper()
		for id, gib := range gangs {
			if a := y.running(id, attempt[id]); a.Memory != unit.Bytes(gib)*unit.GiB || len(a.Parts) != 2 {
				t.Errorf("%s has %s", id, train.JoinPlaces(a.Places()))
			}
			for rank := range 2 {
				want := fmt.Sprintf("%d@kwok-%d", gib, rank)
				if got := y.kubectl("get", "pod", train.PodName(id, attempt[id], rank), "-n", y.namespace, "-o", limit); got != want {
					t.Errorf("rank %d of %s asks for %s, want %s", rank, id, got, want)
				}
			}
		}
	}
	asks(map[train.JobID]int{"large": 1, "small": 1})
	y.kubectl("delete", "pod", "small-1-1", "-n", y.namespace, "--wait=false")
	asks(map[train.JobID]int{"large": 1, "small": 2})
	y.cancel("large")
	y.cancel("small")
	y.nothingLeft()
}
