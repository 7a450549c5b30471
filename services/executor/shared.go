package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// shared is what the parts of an executor have in common: the cache, the records and the log. Only the executor's loop
// writes records.
type shared struct {
	bus     *bus.Bus
	log     *slog.Logger
	cache   *cache
	faults  *faultLog
	metrics *metrics
	buckets buckets
	// keys has admission's public key.
	keys identity.Keys
}

// callTime bounds an exchange with the bus.
const callTime = 5 * time.Second

// swap replaces the known record of an attempt. After a conflict it reads the stored record, and the loop decides
// again.
func (s *shared) swap(ctx context.Context, a train.Attempt) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, revision := s.cache.attempt(a.Job)
	next, err := s.buckets.attempts.Swap(ctx, string(a.Job), a, revision)
	if err == nil {
		s.cache.store(a, next)
		return nil
	}
	// An error is not an answer: the write may have happened.
	switch there, getErr := s.buckets.attempts.Get(ctx, string(a.Job)); {
	case getErr == nil:
		s.cache.store(there.Value, there.Revision)
	case errors.Is(getErr, bus.ErrNotFound):
		s.cache.missing(a.Job)
	}
	return err
}

func (s *shared) publish(ctx context.Context, f event.Fact) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := s.bus.Publish(ctx, f); err != nil {
		return fmt.Errorf("publish %s: %w", f.Key, err)
	}
	return nil
}

// reportAndJob reads the report of an attempt, and its job.
func (s *shared) reportAndJob(ctx context.Context, a train.Attempt) (train.AttemptReport, train.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	report, err := s.buckets.reports.Get(ctx, contract.ReportKey(a.Job, a.Number))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return report.Value, train.Job{}, err
	}
	report.Value = a.Unreported.In(report.Value)
	if job, found := s.cache.job(a.Job); found {
		return report.Value, job, nil
	}
	entry, err := s.buckets.jobs.Get(ctx, string(a.Job))
	if errors.Is(err, bus.ErrNotFound) {
		err = nil // the register lost it: the record of the attempt is enough
	}
	return report.Value, entry.Value, err
}

// retry queues a job again if err is not nil.
func (s *shared) retry(ctx context.Context, job train.JobID, err error) {
	if err == nil {
		return
	}
	s.faults.warn(ctx, "action postponed", job, err)
	s.cache.queue.addAt(job, time.Now().Add(launch.Later))
}
