package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// measure runs the job at each scale and writes the table. A scale at which it does not run is a row of its own.
func (a *app) measure(ctx context.Context, b *bus.Bus, spec train.Spec, scales []scale, every time.Duration) error {
	m := measurement{Runs: []measuredRun{}}
	var seen []curve.StepSample
	for i, s := range scales {
		a.say("run %d of %d: %s", i+1, len(scales), s)
		c, err := a.runScale(ctx, b, s.at(spec), every)
		if err != nil {
			return err
		}
		run := newMeasuredRun(s, c)
		if sample, found := a.taught(ctx, b, c, s); found {
			seen = append(seen, sample)
			run.config, run.StepSeconds = sample.Config, sample.StepSeconds
		}
		m.Runs = append(m.Runs, run)
	}
	m.fit(spec, seen)
	if err := a.printMeasurement(m); err != nil {
		return err
	}
	return m.verdict()
}

// say tells a person what goes on.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), escapeText(fmt.Sprintf(format, args...)))
}

// runScale submits the job and follows it to its end. A run that is given up is cancelled.
func (a *app) runScale(ctx context.Context, b *bus.Bus, spec train.Spec, every time.Duration) (*course, error) {
	id := newID(spec.Name)
	c := newCourse(id, spec)
	facts := make(chan bus.Message)
	own, stop := context.WithCancel(ctx)
	reading := pool.New().WithErrors().WithContext(own)
	defer func() {
		stop()
		_ = reading.Wait() // a reader ends without an error when it is told to
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
	if _, err := a.submit(ctx, b, spec, id); err != nil {
		var exit *exitError
		if ctx.Err() != nil || !errors.As(err, &exit) || exit.code == ExitUnreachable {
			a.giveUp(ctx, b, id) // it may be stored, and would be taken up later
			return nil, err
		}
		c.state, c.reason = train.StateRejected, strings.ReplaceAll(exit.text, "\n  ", " ")
		a.say("  %s", c.reason)
		return c, nil
	}
	if err := a.followCourse(ctx, c, facts, every); err != nil {
		a.giveUp(ctx, b, id)
		return nil, err
	}
	return c, nil
}

// followCourse tells the course at the first epoch, then at the interval, and at the end.
func (a *app) followCourse(ctx context.Context, c *course, facts <-chan bus.Message, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	first := true
	for !c.state.Terminal() {
		select {
		case <-ctx.Done():
			return failure(ExitError, "", "interrupted; job %s is cancelled", c.id)
		case m := <-facts:
			c.see(m)
			if first && len(c.epochs) > 0 {
				first = false
				tick.Reset(every)
				a.say("  %s", c.line())
			}
		case <-tick.C:
			a.say("  %s", c.line())
		}
	}
	last := c.line()
	if c.state != train.StateSucceeded {
		last += fmt.Sprintf("; %s: %s", c.state, c.reason)
	}
	a.say("  %s", last)
	return nil
}

// giveUp asks for the end of a run that nobody waits for any more.
func (a *app) giveUp(ctx context.Context, b *bus.Bus, id train.JobID) {
	request := event.JobFact(id, event.FactCancelRequested, "cancel", event.CancelRequested{By: currentUser(), Reason: "the measurement was interrupted"})
	if err := storeRequest(context.WithoutCancel(ctx), b, request); err != nil {
		a.say("cancel job %s: %v", id, err)
	}
}

// patience is how long the profiler may take to learn from the last epoch.
const patience = 10 * time.Second

// taught is the step time that the profiler has learned from a run: of the whole job, in the unit of its speed model.
func (a *app) taught(ctx context.Context, b *bus.Bus, c *course, s scale) (curve.StepSample, bool) {
	if len(c.epochs) == 0 {
		return curve.StepSample{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		m, found, err := getIfThere[train.Model](ctx, b, event.BucketModels, string(c.id))
		if err == nil && found && m.EpochsSeen >= len(c.epochs) {
			return ofScale(m, s, c.servers)
		}
		if !pause(ctx, logPoll) {
			a.say("  the profiler has told nothing of job %s in %s", c.id, patience)
			return curve.StepSample{}, false
		}
	}
}

// ofScale picks what was measured at a scale, with as many servers as the run was given.
func ofScale(m train.Model, s scale, servers int) (curve.StepSample, bool) {
	for _, x := range m.Speed.Measured {
		if x.Workers == s.Workers && x.Servers == servers {
			return curve.StepSample{Config: x.Config, StepSeconds: x.StepSeconds, Weight: x.Weight}, true
		}
	}
	return curve.StepSample{}, false
}
