// Package experiments conducts tuning experiments. It is a client of the scheduler like any user: a trial is an
// ordinary job, so trials are scheduled, shared, metered and preempted like any other. Its decisions follow from the
// experiment's record alone.
package experiments

import (
	"context"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// Service is the experiments service.
type Service struct{ run.Alone }

// New returns the service.
func New() *Service { return &Service{"experiments"} }

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
	work.Go(func(ctx context.Context) error { return c.keepPolling(ctx) })
	work.Go(func(ctx context.Context) error { return c.keepForgetting(ctx) })
	work.Go(func(ctx context.Context) error { return bus.Answer(ctx, b, contract.SuggestSubject, suggest) })
	p.Started()
	return work.Wait()
}

// suggest answers a client that runs its trials itself.
func suggest(_ context.Context, q contract.SuggestionRequest) (contract.Suggestion, error) {
	return search.Suggest(q)
}

// experimentFacts returns the consumer of facts about experiments.
func (c *conductor) experimentFacts() bus.Consumer {
	return bus.Consumer{
		Name: "experiments-tune", Stream: event.StreamTune, Handle: c.handleExperiment,
		Filters: filters("tune", event.FactSubmitted, event.FactStopRequested, event.FactRetuned),
	}
}

// jobFacts returns the consumer of facts about jobs.
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

// pollEvery is the interval at which budgets and the ledger are checked.
const pollEvery = time.Second

// keepPolling advances experiments by the clock, and retries what failed.
func (c *conductor) keepPolling(ctx context.Context) error {
	for range tick.Every(ctx, pollEvery) {
		for _, id := range c.open() {
			if err := c.poll(ctx, id); err != nil && ctx.Err() == nil {
				c.log.Warn("experiment waits", "experiment", id, "error", err)
			}
		}
	}
	return nil
}
