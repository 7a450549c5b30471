package describe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/share"
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
func viewCompany(ctx context.Context, b *bus.Bus, plan train.Plan, job train.Job) (*companyView, error) {
	mine, found := plan.Find(job.ID)
	if !found || mine.Memory == 0 || job.State.Terminal() {
		return nil, nil //nolint:nilnil // nobody is beside it: that is no error
	}
	view := &companyView{}
	tenants := []share.Tenant{tenantOn(job, mine, mine)}
	for _, a := range plan.Allocations {
		if a.Job == job.ID || a.Node != mine.Node || a.Memory == 0 || !slices.ContainsFunc(a.Devices, func(d train.DeviceID) bool { return slices.Contains(mine.Devices, d) }) {
			continue
		}
		other, known, err := console.GetIfThere(ctx, b, contract.Jobs, string(a.Job))
		if err != nil {
			return nil, err
		}
		if known {
			view.Beside, tenants = append(view.Beside, a.Job), append(tenants, tenantOn(other, a, mine))
		}
	}
	if len(view.Beside) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	known, err := interferenceOf(ctx, b, mine)
	if err != nil {
		return nil, err
	}
	view.rate(known, tenants)
	return view, nil
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

// interferenceOf reads the interference model of the device of an allocation.
func interferenceOf(ctx context.Context, b *bus.Bus, a train.Allocation) (*curve.Interference, error) {
	node, _, err := console.GetIfThere(ctx, b, contract.Nodes, string(a.Node))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(node.Devices, func(d train.Device) bool { return slices.Contains(a.Devices, d.ID) })
	if i < 0 {
		return curve.NewInterference("", nil), nil
	}
	d := &node.Devices[i]
	met, found, err := console.GetIfThere(ctx, b, contract.Interference, curve.InterferenceKey(d))
	if err != nil || !found || met.Known == nil {
		return curve.NewInterference(d.Driver, nil), err
	}
	return met.Known, nil
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
