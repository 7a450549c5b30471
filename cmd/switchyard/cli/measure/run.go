package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/jobs"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/progress"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// measure runs the job at each scale and writes the table. A scale at which the job fails is a row, too.
func measure(ctx context.Context, a *console.Console, b *bus.Bus, spec train.Spec, scales []scale, every time.Duration) error {
	m := measurement{Runs: []measuredRun{}}
	var seen []curve.StepSample
	for i, s := range scales {
		a.Say("run %d of %d: %s", i+1, len(scales), s)
		c, err := runScale(ctx, a, b, s.at(spec), every)
		if err != nil {
			return err
		}
		run := newMeasuredRun(s, c)
		if sample, found := taught(ctx, a, b, c, s); found {
			seen = append(seen, sample)
			run.config, run.StepSeconds = sample.Config, sample.StepSeconds
		}
		m.Runs = append(m.Runs, run)
	}
	m.fit(spec, seen)
	if err := printMeasurement(a, m); err != nil {
		return err
	}
	return m.verdict()
}

// runScale submits the job and follows it to its end. It cancels the run if it gives up.
func runScale(ctx context.Context, a *console.Console, b *bus.Bus, spec train.Spec, every time.Duration) (*progress.Run, error) {
	id := jobs.NewID(spec.Name)
	c := progress.New(id, spec)
	facts := make(chan bus.Message)
	own, stop := context.WithCancel(ctx)
	reading := pool.New().WithErrors().WithContext(own)
	defer func() {
		stop()
		_ = reading.Wait() // the reader was cancelled
	}()
	for stream, filters := range map[string][]string{
		event.StreamJobs:    {event.JobSubject(id, "*").String()},
		event.StreamSamples: {event.Subject{Entity: "sample", ID: string(id), Fact: event.FactStepped, Version: 1}.String(), event.Subject{Entity: "energy", ID: "*", Fact: event.FactMeasured, Version: 1}.String()},
	} {
		last, err := b.LastSequence(ctx, stream)
		if err != nil {
			return nil, err
		}
		reading.Go(func(ctx context.Context) error {
			return b.Follow(ctx, stream, filters, last+1, func(m bus.Message) {
				select {
				case facts <- m:
				case <-ctx.Done():
				}
			})
		})
	}
	if _, err := jobs.Submit(ctx, console.OnBus(b, time.Now), spec, id); err != nil {
		var coded *exit.Error
		if ctx.Err() != nil || !errors.As(err, &coded) || coded.Code == exit.Unreachable {
			giveUp(ctx, a, b, id) // it may be stored, and would be taken up later
			return nil, err
		}
		c.State, c.Reason = train.StateRejected, strings.ReplaceAll(coded.Text, "\n  ", " ")
		a.Say("  %s", c.Reason)
		return c, nil
	}
	if err := followRun(ctx, a, c, facts, every); err != nil {
		giveUp(ctx, a, b, id)
		return nil, err
	}
	return c, nil
}

// followRun prints the progress at the first epoch, then at each interval, and at the end.
func followRun(ctx context.Context, a *console.Console, c *progress.Run, facts <-chan bus.Message, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	first := true
	for !c.State.Terminal() {
		select {
		case <-ctx.Done():
			return exit.Errorf(exit.Failed, "", "interrupted; job %s is cancelled", c.ID)
		case m := <-facts:
			if m.ParseErr == nil {
				c.Apply(m.Parsed, m.Time, m.Data)
			}
			if first && len(c.Epochs) > 0 {
				first = false
				tick.Reset(every)
				a.Say("  %s", line(c))
			}
		case <-tick.C:
			a.Say("  %s", line(c))
		}
	}
	last := line(c)
	if c.State != train.StateSucceeded {
		last += fmt.Sprintf("; %s: %s", c.State, c.Reason)
	}
	a.Say("  %s", last)
	return nil
}

// giveUp cancels a run.
func giveUp(ctx context.Context, a *console.Console, b *bus.Bus, id train.JobID) {
	request := event.JobFact(id, event.FactCancelRequested, "cancel", event.CancelRequested{By: installation.CurrentUser(), Reason: "the measurement was interrupted"})
	if _, err := console.OnBus(b, time.Now).Publish(context.WithoutCancel(ctx), request); err != nil {
		a.Say("cancel job %s: %v", id, err)
	}
}

// patience is the time that the profiler may take to learn from the last epoch.
const patience = 10 * time.Second

// taught returns the step time that the profiler has learned from a run of the whole job, in the unit of its speed
// model.
func taught(ctx context.Context, a *console.Console, b *bus.Bus, c *progress.Run, s scale) (curve.StepSample, bool) {
	if len(c.Epochs) == 0 {
		return curve.StepSample{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		m, found, err := console.GetIfThere(ctx, b, contract.Models, string(c.ID))
		if err == nil && found && m.EpochsSeen >= len(c.Epochs) {
			return ofScale(m, s, c.Servers)
		}
		if !tick.Pause(ctx, jobs.LogPoll) {
			a.Say("  the profiler has published nothing about job %s within %s", c.ID, patience)
			return curve.StepSample{}, false
		}
	}
}

// ofScale returns the measurement at a scale, with the servers that the run had.
func ofScale(m train.Model, s scale, servers int) (curve.StepSample, bool) {
	for _, x := range m.Speed.Measured {
		if x.Workers == s.Workers && x.Servers == servers {
			return curve.StepSample{Config: x.Config, StepSeconds: x.StepSeconds, Weight: x.Weight}, true
		}
	}
	return curve.StepSample{}, false
}

// line describes the progress since the last line.
func line(run *progress.Run) string {
	if run.State != train.StateRunning && !run.State.Terminal() {
		if run.Reason == "" {
			return string(run.State)
		}
		return string(run.State) + ": " + run.Reason
	}
	m := run.Mark()
	words := fmt.Sprintf("epoch %d of %d", m.Epochs, run.Spec.MaxEpochs)
	if m.Step > 0 {
		words += fmt.Sprintf(" and step %d", m.Step)
	}
	if m.StepsPerSecond > 0 {
		words += fmt.Sprintf(", %s samples/s, %s steps/s", figure(m.SamplesPerSecond), figure(m.StepsPerSecond))
	}
	if m.Cores >= 0 {
		words += fmt.Sprintf(", %.2f processors in use", m.Cores)
	}
	return words
}

// figure prints a speed with three digits or all before the point.
func figure(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
