package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// energy prints the energy of a job, how it was measured, and what it achieved.
func (p *page) energy(d Job) {
	account := d.Account
	if account == nil || d.Job.Spec.Array != "" { // an array uses nothing itself
		return
	}
	p.section("energy")
	if !d.Job.State.Terminal() { // its card has it
		p.field("  spent", "%s", render.EnergyWords(*account))
	}
	p.energyParts(account)
	p.field("  power", "%.1f W mean over %s, %.1f W peak", account.MeanPower.Watts(), render.Duration(account.Seconds), account.PeakPower.Watts())
	if account.Epochs > 0 {
		p.field("  per epoch", "%s", account.PerEpoch())
	}
	if account.Samples > 0 {
		p.field("  per sample", "%s", unit.Joules(account.JoulesPerSample()))
	}
	if left := d.Job.Spec.MaxEpochs - account.Epochs; !account.Final && account.Epochs > 0 && left > 0 {
		p.field("  expected", "%s in total, if it runs all epochs", account.Energy+account.PerEpoch()*unit.Energy(left))
	}
	p.target(d.Job.Spec.Target(), account.ToTarget)
	p.best(d.Course)
}

// energyParts prints what the energy is made of: components, idle devices, estimates and lost work.
func (p *page) energyParts(account *train.Account) {
	var parts []string
	for _, component := range slices.Sorted(maps.Keys(account.Components)) {
		part := fmt.Sprintf("%s %s", render.EscapeText(component), account.Components[component])
		if m, known := account.Metering[component]; known && m.ExpectedSeconds > 0 && m.Coverage() < fullCoverage {
			part += fmt.Sprintf(" (known for %.0f %% of the time)", 100*m.Coverage())
		}
		parts = append(parts, part)
	}
	if len(parts) > 0 {
		p.field("  of which", "%s", strings.Join(parts, ", "))
	}
	if account.Idle > 0 {
		p.field("  idle", "%s for devices that it held and did not use", account.Idle)
	}
	if account.Estimated > 0 {
		p.field("  estimated", "%s split without samples of the jobs' use", account.Estimated)
	}
	for _, cause := range slices.Sorted(maps.Keys(account.Waste)) {
		p.field("  wasted", "%s of work that was lost (%s)", account.Waste[cause], render.EscapeText(string(cause)))
	}
}

// target prints the energy that the job used to reach its target.
func (p *page) target(t *train.TargetSpec, reached *train.EpochEnergy) {
	if t == nil {
		return
	}
	if reached == nil {
		p.field("  to target", "%s is not there yet", render.EscapeText(t.Metric))
		return
	}
	value, _ := t.Of(*reached)
	p.field("  to target", "%s to %s %.4g, in epoch %d", reached.Energy, render.EscapeText(t.Metric), value, reached.EpochsDone)
}

// fullCoverage is the measured part of the time above which the text does not mention gaps.
const fullCoverage = 0.99

// best prints the energy to the best loss and to the best value of each metric.
func (p *page) best(course *train.EnergyProgress) {
	if course == nil {
		return
	}
	p.bestOf(course, "loss", func(e train.EpochEnergy) (float64, bool) {
		if e.Loss == nil {
			return 0, false
		}
		return *e.Loss, true
	})
	for _, name := range course.MetricNames() {
		if !strings.HasPrefix(name, train.Nonfinite) {
			p.bestOf(course, name, func(e train.EpochEnergy) (float64, bool) { v, told := e.Metrics[name]; return v, told })
		}
	}
}

func (p *page) bestOf(course *train.EnergyProgress, name string, value func(train.EpochEnergy) (float64, bool)) {
	lowest, which := train.LowerIsBetter(name), "highest"
	if lowest {
		which = "lowest"
	}
	if e, told := course.Best(value, lowest); told {
		best, _ := value(e)
		p.field("  to "+render.Cell(name, len("estimated")), "%s to %.4g, the %s so far, in epoch %d", e.Energy, best, which, e.EpochsDone)
	}
}
