package executor

import (
	"fmt"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestAPlanOfTenThousandJobsIsActedOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var allocations []train.Allocation
	for i := range 10_000 {
		allocations = append(allocations, train.Allocation{
			Job: train.JobID(fmt.Sprintf("01KAJQ7R%018d", i)), Node: train.NodeID(fmt.Sprintf("6ba7b810-9dad-11d1-80b4-%012d", i/8)),
			Devices: []train.DeviceID{train.DeviceID(fmt.Sprintf("GPU-%08x-6ba7-b811-9dad-11d180b4c8a2", i))}, Reason: train.Reason{Code: "Fits", Message: "a device is free"},
		})
	}
	y.job("here", command("true"))
	y.plan(append(allocations, on("here", "cpu:0"))...)
	if got := fact[event.Started](y, "here", event.FactStarted); got.Generation != 1 {
		t.Errorf("started %+v", got)
	}
	// The next plan replaces the first completely: the job that it leaves out has to go, and the other one starts.
	y.job("next", command("true"))
	y.plan(append(allocations, on("next", "cpu:1"))...)
	if got := fact[event.Started](y, "next", event.FactStarted); got.Generation != 2 {
		t.Errorf("started %+v", got)
	}
}
