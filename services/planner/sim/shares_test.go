package sim

import (
	"fmt"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// A tenant that comes late to a full cluster gets its part of it under each policy that has an order, and by its
// shares. Without shares it waits behind all that others have submitted before, as ever.
func TestTenantsShareACluster(t *testing.T) {
	mean := func(policy plan.Policy, shares map[string]float64) (bob float64) {
		var jobs []Arrival
		for i := range 60 {
			a := Arrival{Name: train.JobID(fmt.Sprintf("ann-%02d", i)), Source: recorded(20, 1, 3)}
			if i%2 == 1 {
				a.Name, a.Seconds = train.JobID(fmt.Sprintf("bob-%02d", i)), 100
			}
			a.Source.(*Recorded).Spec.Tenant = string(a.Name[:3])
			jobs = append(jobs, a)
		}
		c := live(policy, liveNodes(4), jobs...)
		c.IntervalSeconds, c.State.Shares, c.State.Tuning.StarvationSeconds = 5, shares, 1e6
		got, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i < 60; i += 2 {
			bob += got.JCTs[fmt.Sprintf("bob-%02d", i)] / 30
		}
		return bob
	}
	for _, policy := range []plan.Policy{plan.FIFO{}, plan.Optimus{}, plan.Switchyard{}} {
		without, even, more := mean(policy, nil), mean(policy, map[string]float64{"bob": 1}), mean(policy, map[string]float64{"bob": 3})
		t.Logf("%s: bob's jobs take %.0f s without shares, %.0f s with one of two, %.0f s with three of four", policy.Name(), without, even, more)
		if !(even < 0.95*without && more < 0.95*even) {
			t.Errorf("%s: bob's jobs take %.0f s without shares, %.0f s with one of two, %.0f s with three of four", policy.Name(), without, even, more)
		}
	}
}
