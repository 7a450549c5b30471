// Package planner watches jobs, nodes, attempts and models, and publishes one message that holds the whole plan
// whenever the decision changes. Package plan decides; this package has the clock, the bus and the order in which plans
// and facts are published.
package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// Service is the planner.
type Service struct {
	run.Alone
	config  settings.Planner
	probing pinglist.Settings
}

// New makes the service.
func New(c settings.Planner) *Service { return &Service{"planner", c, probing(c)} }

// Validate reads the files that the settings name.
func (s *Service) Validate(run.Common) error {
	var errs []error
	if s.config.EnergyRates != "" {
		if err := (&grid{path: s.config.EnergyRates, carbonWeight: s.config.CarbonWeight}).refresh(); err != nil {
			errs = append(errs, fmt.Errorf("planner.energy_rates: %w", err))
		}
	}
	names, err := readTopology(s.config.Topology)
	if err != nil {
		errs = append(errs, fmt.Errorf("planner.topology: %w", err))
	}
	s.probing.Network = names
	return errors.Join(errs...)
}

// Run plans until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	policy, err := plan.Find(s.config.Policy)
	if err != nil {
		return err
	}
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	m := newMeters(p.Metrics)
	known := newCache()
	again, err := newRecurrences(ctx, b, p.Log, known, s.config.EnergyWeight)
	if err != nil {
		return err
	}
	watching := pool.New().WithContext(ctx).WithCancelOnError()
	if err := keepUsage(ctx, b, p.Log, known, s.config.UsageHalfLife, watching); err != nil {
		return err
	}
	rates := &grid{path: s.config.EnergyRates, carbonWeight: s.config.CarbonWeight, log: p.Log}
	checked := newVerifier(m)
	observeJob := func(e bus.Entry[*train.Job], deleted bool) {
		again.see(e, deleted)
		checked.observeJob(e, deleted)
	}
	if err := watch(ctx, b, known, rates, observeJob, watching); err != nil {
		return err
	}
	watching.Go(again.run)
	if err := s.control(ctx, b, p, known, watching); err != nil {
		return err
	}
	l := &loop{
		bus: b, log: p.Log, meters: m, cache: known, policy: policy, interval: s.config.PlanInterval, now: time.Now, published: map[train.JobID]publication{},
		terms: s.terms(), grid: rates, verifier: checked,
	}
	watching.Go(l.listen)
	watching.Go(l.followPlans)
	l.recorder = newRecorder(b, p.Log, m)
	watching.Go(l.recorder.run)
	if l.pods, err = newPods(ctx, b, p.Log, known); err != nil {
		return err
	}
	watching.Go(l.pods.run)
	asked := &questions{bus: b, log: p.Log, cache: known, terms: s.terms(), policy: policy, grid: rates, now: time.Now, timeout: answerTimeout}
	watching.Go(asked.run)
	watching.Go(asked.runOutlooks)
	watching.Go(func(ctx context.Context) error { return l.run(ctx, p.Started) })
	return watching.Wait()
}

// control begins what the planner decides beside plans: power limits, batches of jobs that share a device, which nodes
// may be used, and which paths are probed.
func (s *Service) control(ctx context.Context, b *bus.Bus, p run.Process, known *cache, loops *pool.ContextPool) error {
	limits, err := newPowerLimits(ctx, b, p.Log, known, s.config.PowerLimits, s.config.EnergyWeight)
	if err != nil {
		return err
	}
	batches, err := newTuner(ctx, b, p.Log, known)
	if err != nil {
		return err
	}
	orders, err := newOrders(ctx, b, known)
	if err != nil {
		return err
	}
	probes, err := newProber(ctx, b, p.Log, s.probing, known)
	if err != nil {
		return err
	}
	for _, loop := range []func(context.Context) error{limits.run, batches.run, orders.run, orders.watchLosses, probes.run} {
		loops.Go(loop)
	}
	return nil
}

// terms are what the operator chose, and what the back end can do: it keeps a gang on one node and lets a job leave at
// an epoch's end.
func (s *Service) terms() plan.State {
	return plan.State{
		Quotas: s.config.Quotas, PowerBudgetWatts: s.config.PowerBudgetWatts,
		Tuning: plan.Tuning{
			RestartSeconds: s.config.RestartPrice.Seconds(), MinRescaleSeconds: s.config.RescaleMinInterval.Seconds(), MaxRestartsPerHour: s.config.MaxRestartsPerHour,
			AtEpochs: true, PreemptUnsaved: s.config.PreemptUnsaved,
			LinkLossBound:     s.config.LinkLossBound,
			StarvationSeconds: s.config.StarvationBound.Seconds(), FairnessBound: s.config.FairnessBound, UsageHalfLifeSeconds: s.config.UsageHalfLife.Seconds(), EnergyWeight: s.config.EnergyWeight,
		},
	}
}

// watch keeps cache and rates up to date with the buckets. It also calls observeJob with each record of a job. A
// decision waits until all buckets have been read, the rates too, because a job that has started is not deferred.
func watch(ctx context.Context, b *bus.Bus, known *cache, rates *grid, observeJob func(bus.Entry[*train.Job], bool), watching *pool.ContextPool) error {
	jobs, err := bus.OpenKV(ctx, b, contract.Jobs)
	if err != nil {
		return err
	}
	watching.Go(func(ctx context.Context) error {
		return jobs.WatchShared(ctx, func(e bus.Entry[*train.Job], deleted bool) {
			known.observeJob(e, deleted)
			observeJob(e, deleted)
		}, known.complete(string(contract.Jobs)))
	})
	return errors.Join(
		follow(ctx, b, watching, known, contract.Nodes, func(e bus.Entry[train.Node], deleted bool) { known.observeNode(time.Now(), e, deleted) }),
		follow(ctx, b, watching, known, contract.Attempts, known.observeAttempt),
		follow(ctx, b, watching, known, contract.Reports, known.observeReport),
		follow(ctx, b, watching, known, contract.Models, known.observeModel),
		follow(ctx, b, watching, known, contract.Interference, known.observeInterference),
		follow(ctx, b, watching, known, contract.Links, known.observeLink),
		follow(ctx, b, watching, known, contract.Settings, noting(known, known.wishes)),
		follow(ctx, b, watching, known, contract.Conditions, noting(known, known.conditions)),
		follow(ctx, b, watching, known, contract.Eligibility, noting(known, known.eligible)),
		follow(ctx, b, watching, known, contract.Tenants, noting(known, known.bounds)),
		follow(ctx, b, watching, known, contract.PlacedPods, noting(known, known.placed)),
		follow(ctx, b, watching, known, contract.Tunings, noting(known, known.tunings)),
		follow(ctx, b, watching, known, contract.Rates, rates.see),
		follow(ctx, b, watching, known, contract.Spendings, known.observeSpending, contract.SpendingKey("*")),
	)
}

// follow opens a bucket and has each of its records seen, or those that patterns match; the cache is complete in it
// once all were.
func follow[T any](ctx context.Context, b *bus.Bus, watching *pool.ContextPool, known *cache, bucket contract.Bucket[T], see func(bus.Entry[T], bool), patterns ...string) error {
	records, err := bus.OpenKV(ctx, b, bucket)
	if err != nil {
		return err
	}
	watching.Go(func(ctx context.Context) error {
		return records.Watch(ctx, see, known.complete(string(bucket)), patterns...)
	})
	return nil
}
