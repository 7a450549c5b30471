package describe

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/share"
	"github.com/switchyard-dl/switchyard/services/web/explain"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// companyOf returns nil for a job that has its devices alone.
func companyOf(d view.Detail) *explain.Company {
	if len(d.Beside) == 0 || d.Plan == nil || d.Plan.Allocation == nil {
		return nil
	}
	mine := *d.Plan.Allocation
	v, tenants := &explain.Company{}, []share.Tenant{tenantOn(d.Job, mine, mine)}
	for _, other := range d.Beside {
		v.Beside, tenants = append(v.Beside, other.Job.ID), append(tenants, tenantOn(other.Job, other.Allocation, mine))
	}
	known := curve.NewInterference("", nil)
	if d.Met != nil && d.Met.Known != nil {
		known = d.Met.Known
	}
	rate(v, known, tenants)
	return v
}

// rate fills in the rates of the first tenant on the device where it is slowest.
func rate(v *explain.Company, known *curve.Interference, tenants []share.Tenant) {
	kind, slowest := tenants[0].Kind, share.Slowest(known, tenants, 0)
	var others []curve.Kind
	for _, t := range tenants[1:] {
		if slices.Contains(t.On, slowest) {
			others = append(others, t.Kind)
		}
	}
	v.PredictedRate, _ = known.Without(kind, others).RateAmong(kind, others)
	if v.Measurements = known.Measurements(kind, others); v.Measurements > 0 {
		v.MeasuredRate, _ = known.RateAmong(kind, others)
	}
}

// tenantOn describes a job on the devices that two allocations share, numbered in the order of the second.
func tenantOn(job train.Job, has, of train.Allocation) share.Tenant {
	places := has.Places()
	t := share.Tenant{Kind: curve.KindOf(job.Spec).On(len(train.AllDevices(places)), len(places))}
	number := 0
	for _, p := range of.Places() {
		for _, d := range p.Devices {
			if train.Has(places, p.Node, d) {
				t.On = append(t.On, number)
			}
			number++
		}
	}
	return t
}
