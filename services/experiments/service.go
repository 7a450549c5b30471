// Package experiments conducts tuning experiments. It is a client of the yard like any user: a trial is an ordinary job, so trials are scheduled, shared,
// metered and preempted like any other. What it decides follows from the experiment's record alone.
package experiments

import (
	"context"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
)

// Service is the conductor of experiments.
type Service struct{}

// New makes a conductor.
func New() *Service { return &Service{} }

// Name is the service's name.
func (s *Service) Name() string { return "experiments" }

// Task is the same for all processes: one at a time works.
func (s *Service) Task(run.Common) string { return s.Name() }

// Flags declares none.
func (s *Service) Flags(*pflag.FlagSet) {}

// Validate has nothing to check.
func (s *Service) Validate(run.Common) error { return nil }

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	c, err := newConductor(ctx, b, p.Log)
	if err != nil {
		return err
	}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return b.Consume(ctx, c.experimentFacts()) })
	work.Go(func(ctx context.Context) error { return b.Consume(ctx, c.jobFacts()) })
	work.Go(func(ctx context.Context) error { return c.keepLooking(ctx) })
	p.Started()
	return work.Wait()
}

// experimentFacts is the consumer of what is said of experiments.
func (c *conductor) experimentFacts() bus.Consumer {
	return bus.Consumer{
		Name: "experiments-tune", Stream: event.StreamTune, Handle: c.handleExperiment,
		Filters: filters("tune", event.FactSubmitted, event.FactStopRequested, event.FactRetuned),
	}
}

// jobFacts is the consumer of what becomes of jobs.
func (c *conductor) jobFacts() bus.Consumer {
	return bus.Consumer{
		Name: "experiments-jobs", Stream: event.StreamJobs, Handle: c.handleJob,
		Filters: filters("job", event.FactStarted, event.FactEpochEnded, event.FactAttemptLost, event.FactSucceeded, event.FactFailed, event.FactCancelled, event.FactRejected),
	}
}

func filters(entity string, facts ...string) []string {
	all := make([]string, len(facts))
	for i, fact := range facts {
		all[i] = event.Subject{Entity: entity, ID: "*", Fact: fact, Version: 1}.String()
	}
	return all
}

// lookEvery is how often budgets are checked and the ledger is asked.
const lookEvery = time.Second

// keepLooking moves experiments on by the clock, and does again what could not be done.
func (c *conductor) keepLooking(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		for _, id := range c.open() {
			if err := c.look(ctx, id); err != nil && ctx.Err() == nil {
				c.log.Warn("experiment waits", "experiment", id, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
