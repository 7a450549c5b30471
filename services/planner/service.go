// Package planner watches jobs, nodes, attempts and models, and publishes one message that holds the whole plan whenever the decision changes. What to
// decide is in package plan; in here are the clock, the bus and the order in which things are told.
package planner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// Service is the planner.
type Service struct {
	policy       string
	interval     time.Duration
	restartPrice time.Duration
	rescaleAfter time.Duration
}

// New makes the service; its flags fill it.
func New() *Service { return &Service{} }

// Name is planner.
func (s *Service) Name() string { return "planner" }

// Task is the same for all processes: one at a time works.
func (s *Service) Task(run.Common) string { return s.Name() }

// Flags declares how to decide and how often.
func (s *Service) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.policy, "policy", plan.DefaultPolicy, "who gets devices: "+strings.Join(plan.PolicyNames(), ", "))
	fs.DurationVar(&s.interval, "plan-interval", 5*time.Second, "longest time between two decisions; a change is decided on at once")
	fs.DurationVar(&s.restartPrice, "restart-price", 0, "what a restart of a job is taken to cost (0: the mean of those seen)")
	fs.DurationVar(&s.rescaleAfter, "rescale-min-interval", 10*time.Second, "least time, and at least one epoch, between two changes of a job's size")
}

// Validate names every wrong setting at once.
func (s *Service) Validate(run.Common) error {
	var errs []error
	if _, err := plan.Find(s.policy); err != nil {
		errs = append(errs, fmt.Errorf("--policy: %w", err))
	}
	if s.interval < 100*time.Millisecond || s.interval > time.Hour {
		errs = append(errs, fmt.Errorf("--plan-interval %v: want 100ms to 1h", s.interval))
	}
	if s.restartPrice < 0 {
		errs = append(errs, fmt.Errorf("--restart-price %v: want 0 or more", s.restartPrice))
	}
	if s.rescaleAfter <= 0 {
		errs = append(errs, fmt.Errorf("--rescale-min-interval %v: want more than 0", s.rescaleAfter))
	}
	return errors.Join(errs...)
}

// Run plans until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	policy, err := plan.Find(s.policy)
	if err != nil {
		return err
	}
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	m, err := newMeters(p.Metrics)
	if err != nil {
		return err
	}
	look := newPicture()
	watching := pool.New().WithContext(ctx).WithCancelOnError()
	if err := s.watch(ctx, b, look, watching); err != nil {
		return err
	}
	l := &loop{
		bus: b, log: p.Log, meters: m, picture: look, policy: policy, interval: s.interval, told: map[train.JobID]saying{},
		tuning: plan.Tuning{RestartSeconds: s.restartPrice.Seconds(), MinRescaleSeconds: s.rescaleAfter.Seconds()},
	}
	watching.Go(l.listen)
	watching.Go(l.followPlans)
	watching.Go(func(ctx context.Context) error { return l.run(ctx, p.Started) })
	return watching.Wait()
}

// watch opens the buckets and keeps the picture up to date with them.
func (s *Service) watch(ctx context.Context, b *bus.Bus, look *picture, watching *pool.ContextPool) error {
	jobs, err := bus.OpenKV[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		return err
	}
	nodes, err := bus.OpenKV[train.Node](ctx, b, event.BucketNodes)
	if err != nil {
		return err
	}
	attempts, err := bus.OpenKV[train.Attempt](ctx, b, event.BucketAttempts)
	if err != nil {
		return err
	}
	reports, err := bus.OpenKV[train.AttemptReport](ctx, b, event.BucketReports)
	if err != nil {
		return err
	}
	models, err := bus.OpenKV[train.Model](ctx, b, event.BucketModels)
	if err != nil {
		return err
	}
	watching.Go(func(ctx context.Context) error { return jobs.Watch(ctx, look.seeJob, look.complete(event.BucketJobs)) })
	watching.Go(func(ctx context.Context) error {
		see := func(e bus.Entry[train.Node], deleted bool) { look.seeNode(time.Now(), e, deleted) }
		return nodes.Watch(ctx, see, look.complete(event.BucketNodes))
	})
	watching.Go(func(ctx context.Context) error {
		return attempts.Watch(ctx, look.seeAttempt, look.complete(event.BucketAttempts))
	})
	watching.Go(func(ctx context.Context) error {
		return reports.Watch(ctx, look.seeReport, look.complete(event.BucketReports))
	})
	watching.Go(func(ctx context.Context) error {
		return models.Watch(ctx, look.seeModel, look.complete(event.BucketModels))
	})
	return nil
}
