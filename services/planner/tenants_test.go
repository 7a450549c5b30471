package planner

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/queue"
)

// A job waits while its tenant has used the energy of its quota, and starts as soon as an operator raises it.
func TestAQuotaOfEnergyIsRaisedLive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenants, spendings := openKV(b, contract.Tenants), openKV(b, contract.Spendings)
	bound := func(kwh float64) {
		put(b, tenants, "vision", access.Tenant{Name: "vision", Bounds: access.Bounds{EnergyKWh: &kwh}})
	}
	bound(2)
	put(b, spendings, contract.SpendingKey("vision"), contract.Spending{Tenant: "vision", Month: time.Now().UTC().Format(contract.MonthForm), Energy: 3 * unit.KilowattHour})
	job := admitted("j", 1)
	job.Spec.Tenant = "vision"
	put(b, b.jobs, "j", job)
	b.node(1)
	b.serve()
	b.await(event.StreamPlans, func(m bus.Message) bool {
		p := decode[train.Plan](t, m)
		return len(p.Waiting) == 1 && p.Waiting[0].Blockers[0].Code == queue.EnergyQuotaReached && p.Waiting[0].StartInSeconds > 0
	})
	bound(4)
	b.await(event.StreamPlans, func(m bus.Message) bool { return len(decode[train.Plan](t, m).Allocations) == 1 })
}
