package energy

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// What a tenant has used is in its record as soon as it has a quota, and through restarts; others have no record.
func TestTheEnergyOfATenantIsCounted(t *testing.T) {
	t.Parallel()
	k := newBooks(t)
	tenants, err := bus.OpenKV(within(t), k.bus, contract.Tenants)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().UTC().Add(-time.Minute)
	for job, tenant := range map[train.JobID]string{"a": "vision.lab", "b": "speech", "c": "vision.lab"} {
		k.job(train.Job{ID: job, State: train.StateRunning, Attempt: 1, Spec: train.Spec{Name: "x", User: "eve", Tenant: tenant}})
	}
	measured := func(node train.NodeID, n uint64, jobs ...train.JobID) {
		m := interval(node, "boot", n, cpu(9*unit.Joule, 0, float64(len(jobs))))
		m.From = began.Add(time.Duration(n) * time.Second)
		m.To = m.From.Add(time.Second)
		for _, job := range jobs {
			m.Users = append(m.Users, event.Use{Job: job, Attempt: 1, Component: "cpu", Work: 1})
		}
		k.publish(factOf(m, ""))
	}
	k.start()
	measured("n1", 1, "a", "b", "c")
	measured("n2", 1, "a")
	await(k, contract.BookKey("n2"), func(b Book) bool { return b.Sequence == 1 })
	if err := tenants.Put(within(t), "vision=lab", access.Tenant{Name: "vision.lab", Bounds: access.Bounds{EnergyKWh: new(1.5)}}); err != nil {
		t.Fatal(err)
	}
	key := contract.SpendingKey("vision=lab")
	await(k, key, func(s contract.Spending) bool { return s.Energy == 15*unit.Joule && s.Tenant == "vision.lab" })
	measured("n1", 2, "a")
	await(k, key, func(s contract.Spending) bool { return s.Energy == 24*unit.Joule })
	k.stop()
	k.start()
	measured("n1", 3, "c", "b")
	s := await(k, key, func(s contract.Spending) bool { return s.Energy == 28500*unit.Millijoule })
	if s.Month != time.Now().UTC().Format(contract.MonthForm) {
		t.Errorf("%+v", s)
	}
	if all, err := k.spendings(); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

func (k *books) spendings() ([]bus.Entry[contract.Spending], error) {
	kv, err := bus.OpenKV(within(k.t), k.bus, contract.Spendings)
	if err != nil {
		return nil, err
	}
	return kv.List(within(k.t), contract.SpendingKey("*"))
}

// A watch shows all again after a lost connection, and an hour whenever it has changed.
func TestAnHourCountsOnce(t *testing.T) {
	m := &monthly{month: "2026-03"}
	see := func(key string, energy unit.Energy, deleted bool) {
		m.see(bus.Entry[contract.Book]{Key: key, Value: contract.Book{
			Running: map[train.JobID]train.Account{"a": {Energy: energy}, "b": {Energy: 1}}, Owners: map[train.JobID]contract.Owner{"a": {Tenant: "t"}},
		}}, deleted)
	}
	for range 2 {
		see("n1.2026-03.01.12", 5, false)
		see("n2.2026-03.01.12", 7, false)
		see("n1.2026-04.01.00", 100, false)
		see("n1.2026-03.01.12", 8, false)
	}
	if m.of("t") != 15 || m.of("") != 2 || m.of("other") != 0 {
		t.Errorf("%v", m.sums)
	}
	if see("n2.2026-03.01.12", 0, true); m.of("t") != 8 {
		t.Errorf("%v", m.sums)
	}
}
