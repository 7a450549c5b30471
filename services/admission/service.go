// Package admission is the front door for jobs: it reads every fact of every job in the stream's order, accepts
// submissions or refuses them with all reasons, and keeps the register of jobs. It does not decide when or where a job
// runs.
package admission

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/look"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
	"github.com/switchyard-dl/switchyard/services/admission/mlflow"
	"github.com/switchyard-dl/switchyard/services/admission/tracing"
)

// consumerName is the durable consumer that folds the facts of jobs.
const consumerName = "admission"

// Service is the admission service.
type Service struct {
	run.Alone
	config settings.Admission
	// inspect follows a path on this machine.
	inspect func(path string) fit.Path
}

// New makes the service.
func New(c settings.Admission) *Service { return &Service{consumerName, c, inspect} }

// Run consumes the facts of jobs until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	var jobs *bus.KV[train.Job]
	var nodes *bus.KV[train.Node]
	if err := errors.Join(bus.Open(ctx, b, contract.Jobs, &jobs), bus.Open(ctx, b, contract.Nodes, &nodes)); err != nil {
		return err
	}
	who := fit.Identity{User: s.config.IdentityUser, Tenant: s.config.IdentityTenant, TrustBodies: s.config.TrustBodies}
	where := folders{s.config.AllowRoots, installation.Layout{DataDir: p.Common.DataDir}, s.config.AsSubmitters(), look.New(s.inspect)}
	d := newHandler(b, jobs, who, where, p.Log, newMeters(p.Metrics))
	if d.seal, err = openSeal(ctx, identity.Keys(p.Common.KeysDir()), b, jobs, p.Log); err != nil {
		return err
	}
	told, err := newNotices(ctx, b, s.config.Notify, p.Log)
	if err != nil {
		return err
	}
	if err := bus.Open(ctx, b, contract.Bucket[contract.Trials](contract.Experiments), &d.experiments); err != nil {
		return err
	}
	d.inventory.means = fit.Means{Commands: slices.Sorted(maps.Keys(s.config.Notify.Commands)), Mail: s.config.Notify.SMTP != ""}
	d.inventory.maxArray = s.config.MaxArray
	if d.people, err = newPeople(ctx, b); err != nil {
		return err
	}
	reports, err := newReported(ctx, b, jobs, p.Log)
	if err != nil {
		return err
	}
	nodesKnown, jobsKnown := tick.NewLatch(), tick.NewLatch()
	running := pool.New().WithContext(ctx).WithCancelOnError()
	running.Go(func(ctx context.Context) error { return b.Relay(ctx, reports.allow) })
	running.Go(d.keepWhole)
	running.Go(jobsKnown.Then(d.compareNightly))
	running.Go(func(ctx context.Context) error { return nodes.Watch(ctx, d.inventory.observe, nodesKnown.Open) })
	peopleKnown := d.people.follow(b, running)
	old := &retention{jobs: jobs, log: p.Log, keep: s.config.KeepRecords}
	running.Go(func(ctx context.Context) error {
		return jobs.WatchShared(ctx, func(e bus.Entry[*train.Job], deleted bool) {
			d.queue.observe(e, deleted)
			told.observe(e, deleted)
		}, jobsKnown.Open)
	})
	alarm := &fillAlarm{log: p.Log, meters: d.meters, warned: map[string]bool{}}
	running.Go(func(ctx context.Context) error { return alarm.watch(ctx, b) })
	running.Go(jobsKnown.Then(told.run))
	running.Go(jobsKnown.Then(func(ctx context.Context) error { return old.sweep(ctx, b) }))
	running.Go(jobsKnown.Then(func(ctx context.Context) error {
		return b.Consume(ctx, bus.Consumer{
			Name: consumerName + "-wishes", Stream: event.StreamJobs, Filters: wishFilters(), Handle: d.overtake, Lane: func(m bus.Message) string { return m.Parsed.ID },
		})
	}))
	running.Go(nodesKnown.Then(jobsKnown.Then(func(ctx context.Context) error { return bus.Answer(ctx, b, rpc.CandidateSubject, d.candidate) })))
	s.mirror(b, jobs, p, running)
	// A verdict before the machines are known would be too lenient, and the first positions would be wrong.
	running.Go(nodesKnown.Then(jobsKnown.Then(peopleKnown(func(ctx context.Context) error {
		p.Started()
		return b.Consume(ctx, bus.Consumer{Name: consumerName, Stream: event.StreamJobs, Filters: []string{"yard.job.>"}, Lane: lane, Handle: d.handle})
	}))))
	return running.Wait()
}

// mirror sends what happens to jobs to the servers that are configured.
func (s *Service) mirror(b *bus.Bus, jobs *bus.KV[train.Job], p run.Process, running *pool.ContextPool) {
	if s.config.MLflow.URI != "" {
		running.Go(func(ctx context.Context) error {
			return b.Consume(ctx, mlflow.New(s.config.MLflow, jobs, p.Log).Consumer())
		})
	}
	if s.config.Tracing.Endpoint != "" {
		running.Go(func(ctx context.Context) error {
			return b.Consume(ctx, tracing.New(b, s.config.Tracing, p.Log).Consumer())
		})
	}
}
