// Package profiler learns how each job behaves while it runs. It fits a model of convergence, speed and memory to the
// reported epochs and steps, stores it for the planner, and corrects the estimate of the whole run. It decides
// nothing from the models.
package profiler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Service is the profiling service.
type Service struct {
	run.Alone
	config settings.Profiler
}

// New makes the service.
func New(c settings.Profiler) *Service { return &Service{"profiler", c} }

// Run follows the facts of jobs and their heartbeats until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	st, err := newStore(ctx, b, p)
	if err != nil {
		return err
	}
	if err := st.readInterference(ctx); err != nil {
		return err
	}
	last, err := st.newest(ctx)
	if err != nil {
		return err
	}
	network, err := newLinkMonitor(ctx, b, p.Log, p.Metrics)
	if err != nil {
		return err
	}
	caughtUp := tick.NewLatch()
	running := pool.New().WithContext(ctx).WithCancelOnError()
	running.Go(network.run)
	running.Go(func(ctx context.Context) error { return bus.ForgetEnded(ctx, st.models, st.jobs) })
	running.Go(func(ctx context.Context) error { return st.nodes.Watch(ctx, st.estimator.onNode, nil) })
	running.Go(func(ctx context.Context) error {
		return st.pods.Watch(ctx, func(e bus.Entry[train.PlacedPod], deleted bool) { st.estimator.onPod(e, deleted, time.Now()) }, nil)
	})
	running.Go(func(ctx context.Context) error { return st.followJobs(ctx, last, caughtUp.Open) })
	running.Go(func(ctx context.Context) error {
		return b.Follow(ctx, event.StreamSamples, []string{"yard.sample.*.stepped.v1"}, 0, func(m bus.Message) { st.ignore(m, st.estimator.sample(m)) })
	})
	running.Go(caughtUp.Then(func(ctx context.Context) error { return bus.Answer(ctx, b, rpc.ModelSubject, st.estimator.beginning) }))
	// A fit of half the past would publish outdated estimates.
	running.Go(caughtUp.Then(func(ctx context.Context) error {
		st.estimator.caughtUp()
		p.Started()
		return st.run(ctx, s.config.RefitInterval)
	}))
	return running.Wait()
}

// store writes what the estimator has learned to the bus.
type store struct {
	bus          *bus.Bus
	models       *bus.KV[train.Model]
	jobs         *bus.KV[train.Job]
	nodes        *bus.KV[train.Node]
	pods         *bus.KV[train.PlacedPod]
	interference *bus.KV[curve.InterferenceRecord]
	estimator    *estimator
	log          *slog.Logger
	metrics      *metrics
}

func newStore(ctx context.Context, b *bus.Bus, p run.Process) (*store, error) {
	s := &store{bus: b, estimator: newEstimator(), log: p.Log}
	s.metrics = newMetrics(p.Metrics, s.estimator.size)
	return s, errors.Join(
		bus.Open(ctx, b, contract.Models, &s.models), bus.Open(ctx, b, contract.Jobs, &s.jobs),
		bus.Open(ctx, b, contract.Nodes, &s.nodes), bus.Open(ctx, b, contract.Interference, &s.interference),
		bus.Open(ctx, b, contract.PlacedPods, &s.pods),
	)
}

// followJobs applies all past and future facts of jobs. It calls caughtUp after the last past one.
func (s *store) followJobs(ctx context.Context, last uint64, caughtUp func()) error {
	if last == 0 {
		caughtUp()
	}
	var filters []string
	for _, subject := range followed() {
		filters = append(filters, subject.String())
	}
	return s.bus.Follow(ctx, event.StreamJobs, filters, 1, func(m bus.Message) {
		s.ignore(m, s.estimator.fact(m))
		if m.Sequence >= last {
			caughtUp()
		}
	})
}

// newest returns the sequence of the newest fact that Follow will deliver, or 0.
func (s *store) newest(ctx context.Context) (uint64, error) {
	var last uint64
	for _, subject := range followed() {
		m, err := s.bus.Last(ctx, event.StreamJobs, subject)
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return 0, err
		}
		last = max(last, m.Sequence)
	}
	return last, nil
}

// ignore logs a message that is of no use; admission handles what is wrong with it.
func (s *store) ignore(m bus.Message, err error) {
	if err != nil {
		s.log.Debug("message ignored", "subject", m.Subject, "sequence", m.Sequence, "reason", err)
	}
}

// run stores changes as they come, and what heartbeats show at intervals.
func (s *store) run(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		withSamples := false
		select {
		case <-ctx.Done():
			return nil
		case <-s.estimator.wake:
		case <-tick.C:
			withSamples = true
			if err := s.storeInterference(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("storing measurements is retried", "error", err)
			}
		}
		side := pool.New().WithMaxGoroutines(savesAtOnce)
		for _, id := range s.estimator.due(withSamples) {
			side.Go(func() {
				if err := s.save(ctx, id); err != nil && ctx.Err() == nil {
					s.log.Warn("update postponed", "job", id, "error", err)
					s.estimator.requeue(id)
				}
			})
		}
		side.Wait()
	}
}

// savesAtOnce is how many models are stored side by side: the bus syncs its disk for those together.
const savesAtOnce = 64

// save writes the model of a job and publishes what changed.
func (s *store) save(ctx context.Context, id train.JobID) error {
	begun := time.Now()
	out, alive := s.estimator.update(id)
	if !alive {
		return nil
	}
	s.metrics.refits.Observe(time.Since(begun).Seconds())
	want, err := json.Marshal(out.model)
	if err != nil {
		return fmt.Errorf("encode the model of %s: %w", id, err)
	}
	_, err = s.models.Modify(ctx, string(id), func(m *train.Model) (bool, error) {
		found, err := json.Marshal(*m)
		if err != nil || bytes.Equal(found, want) {
			return false, err
		}
		*m = out.model
		s.metrics.models.Inc()
		return true, nil
	})
	if err != nil {
		return err
	}
	return errors.Join(s.publishEstimate(ctx, id, out.since, out.estimate), s.publishStraggler(ctx, id, out.straggling),
		s.publishConverged(ctx, id, out.since, out.converged))
}
