package explain

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// model prints what the profiler has learned.
func (p *page) model(d Job) {
	m := d.Model
	if m == nil {
		return
	}
	p.section(fmt.Sprintf("learned from %s and %.0f steps", render.Plural(m.EpochsSeen, "epoch"), m.StepsSeen))
	if c := m.Convergence; c != nil {
		last := max(d.Job.Spec.MaxEpochs, m.EpochsSeen)
		p.field("  loss", "%.3g expected after epoch %d, %.3g if it trained for ever (by a curve through %s, off by %.1f %%)",
			c.Loss(float64(last)), last, c.Scale*c.B2, render.Plural(c.Points, "epoch"), 100*c.RMSE)
		if rule := d.Job.Spec.StopRule(); rule.MinDecrease > 0 {
			left := m.EpochsLeft(0, rule)
			p.field("", "ends when it falls by less than %.3g in each of %d epochs: predicted after epoch %.0f (%.0f to %.0f)",
				rule.MinDecrease, rule.Patience, left.Expected, left.Low, left.High)
		}
	}
	if m.EpochSeconds > 0 {
		p.field("  epoch", "%s on %s", render.Duration(m.EpochSeconds), render.Plural(m.EpochConfig.Workers, "device"))
	}
	p.kin(m)
	if m.Memory != nil {
		p.field("  memory", "%.0f MiB + %.3g MiB per sample of the batch, from %s", m.Memory.FixedBytes/(1<<20), m.Memory.SampleBytes/(1<<20), render.Plural(m.Memory.Points, "batch size"))
	}
	if e := m.Efficiency; e != nil && e.BaseBatch > 0 {
		p.field("  batch", "a step at %d samples makes %.2f times the progress of one at %d", 2*e.BaseBatch, e.Gain(2*e.BaseBatch), e.BaseBatch)
	}
	for _, s := range m.Stragglers {
		p.field("  straggler", "worker %d of attempt %d, on %s of node %s, took %.2g times as long for a step as the others", s.Rank, s.Attempt, s.Device, render.EscapeText(string(s.Node)), s.Slowdown)
	}
	p.speed(*d.Model)
}

// kin says how long others of the family ran, until the job itself has finished an epoch.
func (p *page) kin(m *train.Model) {
	if k := m.Kin; k != nil && m.EpochsSeen == 0 {
		p.field("  family", "%s like it took %s to %s for each declared epoch, on %s", render.Plural(k.Jobs, "job"),
			render.Duration(k.EpochSeconds.Low), render.Duration(k.EpochSeconds.High), render.Plural(k.Config.Workers, "device"))
	}
}

// speed lists the measured step times, each with the prediction of the fitted model.
func (p *page) speed(m train.Model) {
	if !m.Speed.Known() {
		return
	}
	if len(m.Speed.Measured) == 1 && m.Speed.Measured[0].Error == 0 {
		one := m.Speed.Measured[0]
		p.field("  step", "%s on %s, mean of %.0f steps", render.StepTime(one.StepSeconds), render.Plural(one.Workers, "device"), one.Weight)
	} else {
		p.speeds(m)
	}
}

// noGuess is the error above which a prediction for more devices is not shown.
const noGuess = 0.5

// speeds compares several configurations with the curve through them.
func (p *page) speeds(m train.Model) {
	p.field("  step", "the curve through these is off by %.1f %%", 100*m.Speed.FitError)
	var lines []string
	widest := train.Config{}
	for _, s := range m.Speed.Measured {
		steps := fmt.Sprintf("%.0f", s.Weight)
		if s.Error > 0 {
			steps = fmt.Sprintf("of its family, +-%.0f %%", 100*s.Error)
		}
		lines = append(lines, fmt.Sprintf("%d\t%d\t%d\t%d\t%s\t%s\t%s", s.Workers, s.Servers, s.Nodes, s.LocalBatch, render.StepTime(s.StepSeconds),
			render.StepTime(m.Speed.FittedSeconds(s.Config)), steps))
		if s.Workers > widest.Workers {
			widest = s.Config
		}
	}
	p.rows("WORKERS\tSERVERS\tNODES\tBATCH\tSTEP\tFITTED\tSTEPS", lines)
	widest.Workers *= 2
	if off := m.Speed.RelativeError(widest); widest.Workers > 0 && m.Speed.Kind == train.SpeedAllReduce && off < noGuess {
		p.field("", "%d devices are predicted to take %s per step, +-%.0f %%", widest.Workers, render.StepTime(m.Speed.StepSeconds(widest)), 100*off)
	}
}
