package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// energy tells what a job has used, how that is known, and what it bought.
func (p *page) energy(d description) {
	account := d.Account
	if account == nil {
		return
	}
	p.section("energy")
	soFar := " so far"
	if account.Final {
		soFar = ""
	}
	how := "by " + strings.Join(account.Methods, " and ")
	if modelledMark(account.Methods) != "" {
		how = "modelled from the use of the processor, not measured"
	}
	p.field("  spent", "%s%s, %s", energyOf(*account), soFar, how)
	var parts []string
	for _, component := range slices.Sorted(maps.Keys(account.Components)) {
		part := fmt.Sprintf("%s %s", escapeText(component), account.Components[component])
		if m, known := account.Metering[component]; known && m.ExpectedSeconds > 0 && m.Coverage() < fullCoverage {
			part += fmt.Sprintf(" (measured %.0f %% of the time)", 100*m.Coverage())
		}
		parts = append(parts, part)
	}
	if len(parts) > 0 {
		p.field("  of which", "%s", strings.Join(parts, ", "))
	}
	if account.Idle > 0 {
		p.field("  idle", "%s for devices that it kept and did not use", account.Idle)
	}
	if account.Estimated > 0 {
		p.field("  estimated", "%s were shared without samples of who worked", account.Estimated)
	}
	for _, cause := range slices.Sorted(maps.Keys(account.Waste)) {
		p.field("  wasted", "%s by what %s", account.Waste[cause], escapeText(string(cause)))
	}
	p.field("  power", "%.1f W mean over %s, %.1f W peak", account.MeanPower.Watts(), duration(account.Seconds), account.PeakPower.Watts())
	if account.Epochs > 0 {
		p.field("  per epoch", "%s", account.PerEpoch())
	}
	if account.Samples > 0 {
		p.field("  per sample", "%.3g J", account.JoulesPerSample())
	}
	if left := d.Job.Spec.MaxEpochs - account.Epochs; !account.Final && account.Epochs > 0 && left > 0 {
		p.field("  expected", "%s in all, if every epoch is run", account.Energy+account.PerEpoch()*unit.Energy(left))
	}
	p.target(d.Job.Spec.Target(), account.ToTarget)
	p.best(d.Course)
}

// target tells the energy to the quality that the training is for.
func (p *page) target(t *train.TargetSpec, reached *train.EpochEnergy) {
	if t == nil {
		return
	}
	if reached == nil {
		p.field("  to target", "%s is not there yet", escapeText(t.Metric))
		return
	}
	value, _ := t.Of(*reached)
	p.field("  to target", "%s to %s %.4g, in epoch %d", reached.Energy, escapeText(t.Metric), value, reached.EpochsDone)
}

// fullCoverage is the part of the time from which on nothing is said of what was missed.
const fullCoverage = 0.99

// best tells the energy to the best loss and to the highest value of each metric.
func (p *page) best(course *train.Course) {
	if course == nil {
		return
	}
	loss := func(e train.EpochEnergy) (float64, bool) {
		if e.Loss == nil {
			return 0, false
		}
		return *e.Loss, true
	}
	if e, told := course.Best(loss, true); told {
		p.field("  to loss", "%s to %.4g, the least so far, in epoch %d", e.Energy, *e.Loss, e.EpochsDone)
	}
	for _, name := range course.MetricNames() {
		metric := func(e train.EpochEnergy) (float64, bool) { v, told := e.Metrics[name]; return v, told }
		if e, told := course.Best(metric, false); told {
			p.field("  to "+cell(name, len("estimated")), "%s to %.4g, the most so far, in epoch %d", e.Energy, e.Metrics[name], e.EpochsDone)
		}
	}
}
