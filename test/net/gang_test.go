package net

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// gpus is the number of devices of each host.
const gpus = 2

func TestGangsAreKeptOffTheLossyLink(t *testing.T) {
	c := newCluster(t)
	c.awaitPaths()
	bad := links()[1]
	if bad.enters != hostAddress(0) {
		t.Fatalf("the second link leads to %s", bad.enters)
	}
	seen := c.followTurns()
	c.lose(bad, 0.05)
	until(t, 2*namedWithin, func() (bool, string) {
		named := seen.take()
		return slices.ContainsFunc(named, func(turn string) bool { return strings.HasPrefix(turn, bad.id()+" degraded") }), fmt.Sprint(named)
	})
	// The rest fits a gang of the other seven hosts, and no larger one.
	c.submit("seven", (hosts-1)*gpus)
	until(t, time.Minute, func() (bool, string) {
		p := c.plan()
		i := slices.IndexFunc(p.Allocations, func(a train.Allocation) bool { return a.Job == "seven" })
		if i < 0 {
			return false, fmt.Sprintf("waiting: %+v, record: %+v", p.Waiting, c.record("seven"))
		}
		a := p.Allocations[i]
		for _, part := range a.Places() {
			if part.Node == "host0" {
				t.Fatalf("it is across the lossy link: %+v", a.Places())
			}
		}
		return len(a.Places()) == hosts-1 && strings.Contains(a.Reason.Message, bad.id()), fmt.Sprintf("%+v", a)
	})
	c.submit("eight", hosts*gpus)
	until(t, time.Minute, func() (bool, string) {
		p := c.plan()
		i := slices.IndexFunc(p.Waiting, func(w train.Waiting) bool { return w.Job == "eight" })
		if i < 0 {
			return false, fmt.Sprintf("allocated: %+v", p.Allocations)
		}
		words := fmt.Sprint(p.Waiting[i].Blockers)
		return strings.Contains(words, bad.id()), words
	})
	c.heal()
	c.cancel("seven")
	until(t, 2*time.Minute, func() (bool, string) {
		p := c.plan()
		i := slices.IndexFunc(p.Allocations, func(a train.Allocation) bool { return a.Job == "eight" })
		return i >= 0 && len(p.Allocations[i].Places()) == hosts, fmt.Sprintf("%+v", p)
	})
}

// A job with parameter servers is moved with them to other nodes when a link to one of its nodes loses packets.
func TestAJobWithParameterServersLeavesTheLossyLink(t *testing.T) {
	c := newCluster(t)
	c.awaitPaths()
	spec := gang("servers", 2*gpus)
	spec.Strategy, spec.ParameterServers = train.StrategyParameterServer, &train.ServersSpec{Max: 2, Cores: 1}
	c.submitSpec("servers", spec)
	// allocated waits until the job has two nodes, its servers on them, and none of them is to be left.
	allocated := func(left train.NodeID, because string) (first train.NodeID) {
		until(t, 4*namedWithin, func() (bool, string) {
			p := c.plan()
			i := slices.IndexFunc(p.Allocations, func(a train.Allocation) bool { return a.Job == "servers" })
			if i < 0 {
				return false, fmt.Sprintf("waiting: %+v, record: %+v", p.Waiting, c.record("servers"))
			}
			a := p.Allocations[i]
			on := func(node train.NodeID) bool {
				return slices.ContainsFunc(a.Places(), func(part train.Part) bool { return part.Node == node })
			}
			first = a.Places()[0].Node
			beside := !slices.ContainsFunc(a.Servers, func(s train.ServerPart) bool { return !on(s.Node) })
			return len(a.Places()) == 2 && a.ServerCount() == 2 && beside && !on(left) && strings.Contains(a.Reason.Message, because), fmt.Sprintf("%+v", a)
		})
		return first
	}
	left := allocated("", "")
	bad := links()[slices.IndexFunc(links(), func(k link) bool { return k.namespace == string(left) })]
	c.lose(bad, 0.2)
	lost := time.Now()
	to := allocated(left, bad.id())
	t.Logf("moved from %s to %s %v after the first lost packet", left, to, time.Since(lost).Round(time.Second))
}

// submit publishes a job over a number of devices.
func (c *cluster) submit(id train.JobID, devices int) {
	c.t.Helper()
	c.submitSpec(id, gang(id, devices))
}

func gang(id train.JobID, devices int) train.Spec {
	return train.Spec{
		Name: string(id), Image: "trainer", Command: []string{"/trainer"}, BatchSize: 10, TrainingSetSize: 10_000, MaxEpochs: 10,
		Strategy: train.StrategyAllReduce, MinDevices: devices, MaxDevices: devices,
	}
}

func (c *cluster) submitSpec(id train.JobID, spec train.Spec) {
	c.t.Helper()
	if err := c.bus.Publish(c.t.Context(), event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) cancel(id train.JobID) {
	c.t.Helper()
	if err := c.bus.Publish(c.t.Context(), event.JobFact(id, event.FactCancelRequested, "cancel", event.CancelRequested{})); err != nil {
		c.t.Fatal(err)
	}
}

// plan returns the newest plan.
func (c *cluster) plan() train.Plan {
	c.t.Helper()
	m, err := c.bus.Last(c.t.Context(), event.StreamPlans,
		event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1})
	if err != nil {
		return train.Plan{}
	}
	decided, err := event.Decode[event.PlanDecided](m.Data)
	if err != nil {
		c.t.Fatal(err)
	}
	return decided.Plan
}

// record reads the record of a job, for error messages.
func (c *cluster) record(id train.JobID) train.Job {
	jobs, err := bus.OpenKV[train.Job](c.t.Context(), c.bus, contract.Jobs)
	if err != nil {
		c.t.Fatal(err)
	}
	e, _ := jobs.Get(c.t.Context(), string(id))
	return e.Value
}
