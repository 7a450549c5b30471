// Package profiler learns how each job behaves while it runs: it fits a model of convergence, speed and memory from the epochs and steps that are told,
// keeps it for the planner, and corrects the estimate of the whole run. It decides nothing from the models.
package profiler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Service is the profiling service.
type Service struct {
	refitInterval time.Duration
}

// New makes the service; its flags fill it.
func New() *Service { return &Service{} }

// Name is the service's name on the bus.
func (s *Service) Name() string { return "profiler" }

// Task is the same for all processes: one at a time works.
func (s *Service) Task(run.Common) string { return s.Name() }

// Flags declares how often heartbeats lead to a new fit.
func (s *Service) Flags(fs *pflag.FlagSet) {
	fs.DurationVar(&s.refitInterval, "refit-interval", 3*time.Second, "least time between two fits of a job from heartbeats alone; an ended epoch leads to one at once")
}

// Validate names every wrong setting at once.
func (s *Service) Validate(run.Common) error {
	if s.refitInterval < 100*time.Millisecond || s.refitInterval > time.Hour {
		return fmt.Errorf("--refit-interval %s: want 100ms to 1h", s.refitInterval)
	}
	return nil
}

// Run follows the facts of jobs and their heartbeats until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	t, err := newTeacher(ctx, b, p)
	if err != nil {
		return err
	}
	if err := t.readMeetings(ctx); err != nil {
		return err
	}
	last, err := t.newest(ctx)
	if err != nil {
		return err
	}
	network, err := newWatchman(ctx, b, p.Log, p.Metrics)
	if err != nil {
		return err
	}
	caughtUp := make(chan struct{})
	running := pool.New().WithContext(ctx).WithCancelOnError()
	running.Go(network.run)
	running.Go(func(ctx context.Context) error { return bus.ForgetEnded(ctx, t.models, t.jobs) })
	running.Go(func(ctx context.Context) error { return t.nodes.Watch(ctx, t.learner.seeNode, nil) })
	running.Go(func(ctx context.Context) error {
		return t.followJobs(ctx, last, sync.OnceFunc(func() { close(caughtUp) }))
	})
	running.Go(func(ctx context.Context) error {
		return b.Follow(ctx, event.StreamSamples, []string{"yard.sample.*.stepped.v1"}, 0, func(m bus.Message) { t.ignore(m, t.learner.sample(m)) })
	})
	running.Go(func(ctx context.Context) error {
		// A fit of half the past would publish estimates that were overtaken long ago.
		select {
		case <-ctx.Done():
			return nil
		case <-caughtUp:
		}
		t.learner.arrive()
		p.Started()
		return t.teach(ctx, s.refitInterval)
	})
	return running.Wait()
}

func filters() []string {
	var all []string
	for _, s := range subjects() {
		all = append(all, s.String())
	}
	return all
}

// teacher stores what the learner knows.
type teacher struct {
	bus      *bus.Bus
	models   *bus.KV[train.Model]
	jobs     *bus.KV[train.Job]
	nodes    *bus.KV[train.Node]
	meetings *bus.KV[curve.Meetings]
	learner  *learner
	log      *slog.Logger
	meters   *meters
}

func newTeacher(ctx context.Context, b *bus.Bus, p run.Process) (*teacher, error) {
	t := &teacher{bus: b, learner: newLearner(), log: p.Log, meters: newMeters()}
	t.meters.register(p.Metrics, t.learner.size)
	var errs [4]error
	t.models, errs[0] = bus.OpenKV[train.Model](ctx, b, event.BucketModels)
	t.jobs, errs[1] = bus.OpenKV[train.Job](ctx, b, event.BucketJobs)
	t.nodes, errs[2] = bus.OpenKV[train.Node](ctx, b, event.BucketNodes)
	t.meetings, errs[3] = bus.OpenKV[curve.Meetings](ctx, b, event.BucketMeetings)
	return t, errors.Join(errs[:]...)
}

// followJobs enters the facts of jobs, all that there are and those to come, and calls caughtUp when it has come to the last of the past ones.
func (t *teacher) followJobs(ctx context.Context, last uint64, caughtUp func()) error {
	if last == 0 {
		caughtUp()
	}
	return t.bus.Follow(ctx, event.StreamJobs, filters(), 1, func(m bus.Message) {
		t.ignore(m, t.learner.fact(m))
		if m.Sequence >= last {
			caughtUp()
		}
	})
}

// newest is the sequence of the newest fact that Follow will hand out; 0 when there is none.
func (t *teacher) newest(ctx context.Context) (uint64, error) {
	var last uint64
	for _, s := range subjects() {
		m, err := t.bus.Last(ctx, event.StreamJobs, s)
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return 0, err
		}
		last = max(last, m.Sequence)
	}
	return last, nil
}

// ignore logs a message that teaches nothing; admission sets aside what is wrong with it.
func (t *teacher) ignore(m bus.Message, err error) {
	if err != nil {
		t.log.Debug("message teaches nothing", "subject", m.Subject, "sequence", m.Sequence, "reason", err)
	}
}

// teach stores news as they come, and what heartbeats say at intervals.
func (t *teacher) teach(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		withSamples := false
		select {
		case <-ctx.Done():
			return nil
		case <-t.learner.wake:
		case <-tick.C:
			withSamples = true
			if err := t.storeMeetings(ctx); err != nil && ctx.Err() == nil {
				t.log.Warn("measurements are stored later", "error", err)
			}
		}
		for _, id := range t.learner.due(withSamples) {
			if err := t.store(ctx, id); err != nil && ctx.Err() == nil {
				t.log.Warn("lesson postponed", "job", id, "error", err)
				t.learner.again(id)
			}
		}
	}
}

// store writes the model of a job and tells an estimate that is news.
func (t *teacher) store(ctx context.Context, id train.JobID) error {
	begun := time.Now()
	out, alive := t.learner.lesson(id)
	if !alive {
		return nil
	}
	t.meters.fitted(time.Since(begun))
	want, err := json.Marshal(out.model)
	if err != nil {
		return fmt.Errorf("encode the model of %s: %w", id, err)
	}
	_, err = t.models.Modify(ctx, string(id), func(m *train.Model) (bool, error) {
		found, err := json.Marshal(*m)
		if err != nil || bytes.Equal(found, want) {
			return false, err
		}
		*m = out.model
		t.meters.models.Inc()
		return true, nil
	})
	if err != nil {
		return err
	}
	return errors.Join(t.tellEstimate(ctx, id, out.estimate), t.tellStraggler(ctx, id, out.straggling), t.tellConverged(ctx, id, out.converged))
}
