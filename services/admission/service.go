// Package admission is the front door for jobs: it reads every fact of every job in the stream's order, accepts
// submissions or refuses them with all reasons, and keeps the register of jobs. It does not decide when or where a job
// runs.
package admission

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// Service is the admission service.
type Service struct{ config settings.Admission }

// New makes the service.
func New(c settings.Admission) *Service { return &Service{config: c} }

// Name returns the service's name on the bus, which is also that of the durable consumer.
func (s *Service) Name() string { return "admission" }

// Task returns the lease's name, the same for all processes: one works at a time.
func (s *Service) Task(run.Common) string { return s.Name() }

// Validate has nothing to check: every setting was checked alone.
func (s *Service) Validate(run.Common) error { return nil }

// Run consumes the facts of jobs until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	jobs, err := bus.OpenKV(ctx, b, contract.Jobs)
	if err != nil {
		return err
	}
	nodes, err := bus.OpenKV(ctx, b, contract.Nodes)
	if err != nil {
		return err
	}
	identity := fit.Identity{User: s.config.IdentityUser, Tenant: s.config.IdentityTenant, TrustBodies: s.config.TrustBodies}
	d := newHandler(b, jobs, identity, append(s.config.AllowRoots, p.Common.DataDir), p.Log)
	d.meters.register(p.Metrics)
	nodesKnown, jobsKnown := newLatch(), newLatch()
	running := pool.New().WithContext(ctx).WithCancelOnError()
	running.Go(func(ctx context.Context) error { return nodes.Watch(ctx, d.inventory.observe, nodesKnown.open) })
	old := &retention{jobs: jobs, log: p.Log, keep: cmp.Or(s.config.KeepRecords, math.MaxInt64), old: map[string]uint64{}}
	running.Go(func(ctx context.Context) error {
		return jobs.Watch(ctx, func(e bus.Entry[train.Job], deleted bool) {
			d.queue.observe(e, deleted)
			old.observe(time.Now(), e, deleted)
		}, jobsKnown.open)
	})
	running.Go(func(ctx context.Context) error {
		return housekeeping(ctx, b, old, &fillAlarm{log: p.Log, meters: d.meters, warned: map[string]bool{}})
	})
	running.Go(func(ctx context.Context) error {
		// A verdict before the machines are known would be too lenient, and the first positions would be wrong.
		if !nodesKnown.wait(ctx) || !jobsKnown.wait(ctx) {
			return nil
		}
		p.Started()
		return b.Consume(ctx,
			bus.Consumer{Name: s.Name(), Stream: event.StreamJobs, Filters: []string{"yard.job.>"}, Handle: d.handle})
	})
	return running.Wait()
}
