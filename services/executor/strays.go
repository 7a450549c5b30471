package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// straySweeper looks after attempts without a record: those that JOBS knows get a record again, the others are ended.
type straySweeper struct {
	*shared
	backend backend
	realm   diff.Realm
	// found are the attempts that are being ended.
	found []launch.Found
	// next is when the machine and the records are compared again.
	next time.Time
}

const (
	// compareInterval is how often the machine and the records are compared. A request of an executor that was killed
	// may reach the cluster after the comparison of the next one.
	compareInterval = 10 * time.Minute
	// youngAge is the age up to which the record of what is found may be on its way.
	youngAge = 30 * time.Second
)

// sweep compares the machine with the records after each listing of them, and at intervals. It writes records again
// that the bus has lost, ends what no record and no fact speaks of, and forgets the files of attempts whose end was
// published.
func (s *straySweeper) sweep(ctx context.Context, now time.Time) {
	if listed := s.cache.synced.orphansDue(); listed || s.cache.synced.attemptsKnown() && !now.Before(s.next) {
		next, err := s.compare(ctx, now)
		s.next = next
		s.faults.warn(ctx, "machine and records not compared", "", err)
	}
	s.found = slices.DeleteFunc(s.found, func(f launch.Found) bool {
		// Its end is decided: what is left of a gang is not waited for.
		over, err := s.end(ctx, train.Attempt{
			Job: f.Job, Number: f.Number, Backend: s.realm.Backend, Namespace: f.Namespace, Node: s.realm.Machine, Ending: &train.Exit{Forced: true, Signal: "SIGTERM"},
		})
		s.faults.warn(ctx, "stray job not ended", f.Job, err)
		return over
	})
}

// end ends an attempt, and reports whether nothing is left of it.
func (s *straySweeper) end(ctx context.Context, stray train.Attempt) (over bool, err error) {
	status, err := s.backend.Status(ctx, stray)
	over = status.Phase == launch.Exited
	switch {
	case err != nil:
	case status.Phase == launch.Lost:
		var left int
		left, err = s.backend.Sweep(ctx, stray)
		over = left == 0
	case !over:
		err = s.backend.Stop(ctx, stray, time.Now())
	}
	if err == nil && over {
		err = s.backend.Forget(ctx, stray)
	}
	return err == nil && over, err
}

// compare writes the records again that the bus has lost, and finds the strays. It returns when to compare again: at
// once after an error, and when what is too young now will be old enough.
func (s *straySweeper) compare(ctx context.Context, now time.Time) (next time.Time, err error) {
	if err := s.writeAgain(ctx); err != nil {
		return now, err
	}
	found, err := s.backend.Find(ctx)
	if err != nil {
		return now, fmt.Errorf("search the machine: %w", err)
	}
	s.found, next = nil, now.Add(compareInterval)
	for _, f := range found {
		a, _ := s.cache.attempt(f.Job)
		if a.Number == f.Number && (a.Live() || !a.Published) {
			continue
		}
		if old := f.Made.Add(youngAge); old.After(now) {
			if old.Before(next) {
				next = old
			}
			continue
		}
		if err := s.judge(ctx, f, a); err != nil {
			return now, err
		}
	}
	return next, nil
}

// writeAgain writes those records again that are in memory and no longer on the bus.
func (s *straySweeper) writeAgain(ctx context.Context) error {
	for _, e := range s.cache.unfinished() {
		_, err := s.buckets.attempts.Get(ctx, e.Key)
		if errors.Is(err, bus.ErrNotFound) {
			s.cache.missing(e.Value.Job)
			s.log.Error("the record of an attempt was lost, and is written again", "job", e.Value.Job, "attempt", e.Value.Number)
			err = s.swap(ctx, e.Value)
		}
		if err != nil && !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
	return nil
}

// judge decides about what was found without a record, by the facts of its job. known is the record of another attempt
// of the job, if there is one.
func (s *straySweeper) judge(ctx context.Context, f launch.Found, known train.Attempt) error {
	if known.Number >= f.Number { // a record says that it has ended
		s.found = append(s.found, f)
		return nil
	}
	facts, err := s.factsOf(ctx, f)
	runs := f.Phase == launch.Running || f.Phase == launch.Starting
	switch {
	case err != nil:
		return err
	case facts.over || !facts.known:
		if s.found = append(s.found, f); runs {
			s.log.Warn("ending an attempt that no record speaks of", "job", f.Job, "attempt", f.Number, "fact_of_its_end", facts.over)
		}
		return nil
	case facts.started == nil:
		s.log.Error("an attempt runs that no record speaks of, and no fact says on which devices: it is left alone, end it by `switchyard cancel`",
			"job", f.Job, "attempt", f.Number)
		return nil
	}
	return s.adopt(ctx, f, facts)
}

// adopt writes the record of an attempt again from the fact of its start and what its supervisor wrote.
func (s *straySweeper) adopt(ctx context.Context, f launch.Found, facts life) error {
	job, _ := s.cache.job(f.Job)
	b := facts.started
	a := train.Attempt{
		Job: f.Job, Number: f.Number, Backend: s.realm.Backend, Namespace: f.Namespace, Machine: b.Machine, LogFormat: job.Spec.LogFormat, Generation: b.Generation,
		Enforcement: b.Enforcement, ServerCount: b.Servers, FromScratch: b.FromScratch, StartedEpochs: b.EpochsDone, Resumed: job.Resumed,
		Phase: train.PhaseRunning, ClaimedAt: facts.startedAt, StartedAt: facts.startedAt,
	}
	a.SetPlaces(b.Places())
	status, err := s.backend.Status(ctx, a)
	if err != nil {
		return err
	}
	a.PID, a.PIDStart, a.BootID = status.PID, status.PIDStart, status.BootID
	capability, token, err := s.backend.ReadSecrets(ctx, a)
	if err != nil {
		return fmt.Errorf("read the secrets of %s: %w", a.Job, err)
	}
	a.CapabilityHash, a.TokenHash, a.MarkHash = train.Hash(capability), train.Hash(token), train.Hash(train.Mark(a.Job, a.Number, token))
	s.log.Error("the record of an attempt was lost, and is made again from JOBS", "job", a.Job, "attempt", a.Number)
	return s.swap(ctx, a)
}

// life is what the facts of a job say of one of its attempts.
type life struct {
	// known says that the job was submitted, over that the attempt has ended.
	known, over bool
	// started is the fact of its start, if there is one.
	started   *event.Started
	startedAt time.Time
}

// factsOf reads what the facts of a job say of an attempt.
func (s *straySweeper) factsOf(ctx context.Context, f launch.Found) (l life, err error) {
	err = s.bus.Stored(ctx, event.StreamJobs, []string{"yard.job." + string(f.Job) + ".>"}, time.Time{}, func(m bus.Message) { l.follow(f.Number, m) })
	if err != nil {
		return l, fmt.Errorf("look %s up: %w", f.Job, err)
	}
	return l, nil
}

// follow takes in one fact of the job.
func (l *life) follow(number int, m bus.Message) {
	l.known = true
	if m.Source != "executor" {
		return
	}
	switch m.Parsed.Fact {
	case event.FactStarted:
		b, err := event.Decode[event.Started](m.Data)
		if err == nil && b.Attempt == number {
			l.started, l.startedAt = &b, m.Time
		}
		l.over = l.over || err == nil && b.Attempt > number
	case event.FactPreempted, event.FactAttemptLost, event.FactSucceeded, event.FactFailed, event.FactCancelled:
		b, err := event.Decode[struct {
			Attempt int `json:"attempt"`
		}](m.Data)
		l.over = l.over || err == nil && b.Attempt >= number
	}
}
