package energy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// owner is whose energy is counted together.
type owner struct{ tenant, user, project string }

func ownerOf(s train.Spec) owner { return owner{s.Tenant, s.User, s.Project} }

// expense is what jobs have used, and what that costs and emits by the tariff.
type expense struct {
	energy      unit.Energy
	cost, grams float64
}

// expenses count what the jobs of each owner have used since this process began. Unlike the sums of accounts, they
// never fall: no old job is deleted from them.
type expenses map[owner]expense

// Owners beyond the first thousand are counted as one.
const (
	mostOwners  = 1000
	otherOwners = "_other"
)

// add adds what is in others.
func (x expenses) add(others expenses) {
	for o, e := range others {
		if _, known := x[o]; !known && len(x) >= mostOwners {
			o = owner{user: otherOwners}
		}
		x.spend(o, e)
	}
}

func (x expenses) spend(o owner, e expense) {
	sum := x[o]
	sum.energy, sum.cost, sum.grams = sum.energy+e.energy, sum.cost+e.cost, sum.grams+e.grams
	x[o] = sum
}

// priced returns the expense of an energy at a time.
func priced(price func(time.Time) tariff.Price, used unit.Energy, at time.Time) expense {
	e := expense{energy: used}
	if price == nil {
		return e
	}
	p := price(at)
	if p.PerKWh != nil {
		e.cost = *p.PerKWh * p.PUE * used.KilowattHours()
	}
	if p.GramsPerKWh != nil {
		e.grams = *p.GramsPerKWh * p.PUE * used.KilowattHours()
	}
	return e
}

// ownerCollector shows the expenses, and the prices of this moment.
type ownerCollector struct {
	ledger                             *ledger
	now                                func() time.Time
	energy, cost, grams, price, carbon *prometheus.Desc
}

func newOwnerCollector(l *ledger, now func() time.Time) ownerCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	const since = ", since the energy service began."
	return ownerCollector{
		ledger: l, now: now,
		energy: desc("switchyard_owner_energy_joules_total", "Energy of the jobs of an owner"+since, "tenant", "user", "project"),
		cost:   desc("switchyard_owner_cost_total", "Cost of that energy at the facility, by the tariff"+since, "tenant", "user", "project", "currency"),
		grams:  desc("switchyard_owner_co2e_grams_total", "Carbon of that energy at the facility, by the tariff"+since, "tenant", "user", "project"),
		price:  desc("switchyard_energy_price_per_kwh", "Price of a kilowatt-hour of the machines, with the overhead of the building.", "currency"),
		carbon: desc("switchyard_energy_co2e_grams_per_kwh", "Carbon of a kilowatt-hour of the machines, with the overhead of the building."),
	}
}

// Describe implements prometheus.Collector.
func (c ownerCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.energy, c.cost, c.grams, c.price, c.carbon} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c ownerCollector) Collect(metrics chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	l := c.ledger
	if l.price != nil {
		p := l.price(c.now())
		if p.PerKWh != nil {
			put(c.price, prometheus.GaugeValue, *p.PerKWh*p.PUE, l.currency)
		}
		if p.GramsPerKWh != nil {
			put(c.carbon, prometheus.GaugeValue, *p.GramsPerKWh*p.PUE)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for o, e := range l.spent {
		put(c.energy, prometheus.CounterValue, e.energy.Joules(), o.tenant, o.user, o.project)
		if l.price != nil {
			put(c.cost, prometheus.CounterValue, e.cost, o.tenant, o.user, o.project, l.currency)
			put(c.grams, prometheus.CounterValue, e.grams, o.tenant, o.user, o.project)
		}
	}
}
