package describe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/share"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// companyView lists the co-runners of a job, and its rate on the device where it is slowest: the part of its speed
// alone that it keeps.
type companyView struct {
	Beside []train.JobID `json:"beside"`
	// PredictedRate follows from interference samples of other jobs, MeasuredRate is the mean of Measurements samples
	// of these jobs.
	PredictedRate float64 `json:"predicted_rate"`
	MeasuredRate  float64 `json:"measured_rate,omitempty"`
	Measurements  int     `json:"measurements,omitempty"`
}

// viewCompany returns nil for a job that has its devices alone.
func viewCompany(d view.Detail) *companyView {
	if len(d.Beside) == 0 || d.Plan == nil || d.Plan.Allocation == nil {
		return nil
	}
	mine := *d.Plan.Allocation
	v, tenants := &companyView{}, []share.Tenant{tenantOn(d.Job, mine, mine)}
	for _, other := range d.Beside {
		v.Beside, tenants = append(v.Beside, other.Job.ID), append(tenants, tenantOn(other.Job, other.Allocation, mine))
	}
	known := curve.NewInterference("", nil)
	if d.Met != nil && d.Met.Known != nil {
		known = d.Met.Known
	}
	v.rate(known, tenants)
	return v
}

// rate fills in the rates of the first tenant on the device where it is slowest.
func (v *companyView) rate(known *curve.Interference, tenants []share.Tenant) {
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

// tenantOn describes a job on the devices that two allocations share, by the index of each device.
func tenantOn(job train.Job, has, of train.Allocation) share.Tenant {
	t := share.Tenant{Kind: curve.KindOf(job.Spec).On(len(has.Devices))}
	for i, d := range of.Devices {
		if slices.Contains(has.Devices, d) {
			t.On = append(t.On, i)
		}
	}
	return t
}

func (p *page) company(d description) {
	c := d.Company
	if c == nil {
		return
	}
	names := make([]string, len(c.Beside))
	for i, id := range c.Beside {
		names[i] = string(id)
	}
	line := fmt.Sprintf("beside %s: predicted at %.0f %% of its speed alone", strings.Join(names, ", "), 100*c.PredictedRate)
	if c.Measurements > 0 {
		line += fmt.Sprintf(", measured %.0f %% (%s)", 100*c.MeasuredRate, render.Plural(c.Measurements, "measurement"))
	}
	p.field("shares", "%s", render.EscapeText(line))
}
