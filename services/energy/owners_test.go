package energy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// TestOwnersPayForWhatTheirJobsUse books two jobs of two users, one interval twice, and forgets a job.
func TestOwnersPayForWhatTheirJobsUse(t *testing.T) {
	k := newBooks(t)
	l := open(t, k)
	l.currency, l.price = "CHF", func(time.Time) tariff.Price {
		return tariff.Price{PerKWh: new(0.5), GramsPerKWh: new(100.0), PUE: 2}
	}
	for id, user := range map[train.JobID]string{"a": "ann", "b": "bob"} {
		job := train.Job{ID: id, State: train.StateRunning, Attempt: 1, Spec: train.Spec{User: user, Tenant: "vision", Project: "thesis"}}
		l.observe(bus.Entry[*train.Job]{Key: string(id), Value: &job}, false)
	}
	uses := []event.Use{{Job: "a", Component: "cpu", Work: 1.5}, {Job: "b", Component: "cpu", Work: 0.5}}
	for _, n := range []uint64{1, 2, 2} {
		if err := l.take(within(t), message(t, interval("n1", "b", n, cpu(3.6e6*unit.Joule/20, 0, 2), uses...), n)); err != nil {
			t.Fatal(err)
		}
	}
	want := `
# HELP switchyard_energy_co2e_grams_per_kwh Carbon of a kilowatt-hour of the machines, with the overhead of the building.
# TYPE switchyard_energy_co2e_grams_per_kwh gauge
switchyard_energy_co2e_grams_per_kwh 200
# HELP switchyard_energy_price_per_kwh Price of a kilowatt-hour of the machines, with the overhead of the building.
# TYPE switchyard_energy_price_per_kwh gauge
switchyard_energy_price_per_kwh{currency="CHF"} 1
# HELP switchyard_owner_cost_total Cost of that energy at the facility, by the tariff, since the energy service began.
# TYPE switchyard_owner_cost_total counter
switchyard_owner_cost_total{currency="CHF",project="thesis",tenant="vision",user="ann"} 0.075
switchyard_owner_cost_total{currency="CHF",project="thesis",tenant="vision",user="bob"} 0.025
# HELP switchyard_owner_energy_joules_total Energy of the jobs of an owner, since the energy service began.
# TYPE switchyard_owner_energy_joules_total counter
switchyard_owner_energy_joules_total{project="thesis",tenant="vision",user="ann"} 270000
switchyard_owner_energy_joules_total{project="thesis",tenant="vision",user="bob"} 90000
`
	names := []string{"switchyard_energy_co2e_grams_per_kwh", "switchyard_energy_price_per_kwh", "switchyard_owner_cost_total", "switchyard_owner_energy_joules_total"}
	c := newOwnerCollector(l, time.Now)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("%v, error %v", problems, err)
	}
}

// TestOwnersAreBounded: the energy of too many owners is counted as that of one.
func TestOwnersAreBounded(t *testing.T) {
	x := expenses{}
	for i := range mostOwners + 7 {
		x.add(expenses{{user: fmt.Sprint(i)}: {energy: unit.Joule}})
	}
	if other := x[owner{user: otherOwners}]; len(x) != mostOwners+1 || other.energy != 7*unit.Joule {
		t.Errorf("%d owners, others %v", len(x), other)
	}
}
