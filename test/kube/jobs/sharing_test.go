package jobs

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The planner decides: one GPU is had by a job for itself, the other one by two jobs together, and a third that does not fit waits and is told why. It runs as
// soon as one of the two has left.
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

	// What the plan says is what Kubernetes accounts for, and the containers are told of it.
	node, err := y.node()
	y.must(err)
	var gpu train.Device
	for _, d := range node.Devices {
		if d.ID == large.Devices[0] {
			gpu = d
		}
	}
	for pod, units := range map[string]string{"whole-1-0": "", "large-1-0": "10", "small-1-0": "5"} {
		limit := y.kubectl("get", "pod", pod, "-n", y.namespace, "-o", `jsonpath={.spec.containers[0].resources.limits.`+strings.ReplaceAll(gpu.Resource, ".", `\.`)+`}`)
		if limit != units {
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
