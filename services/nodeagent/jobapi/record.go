package jobapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
)

// effect is what a request changes: a fact, the record of the attempt, or both. It is also the form in which the
// outbox stores it.
type effect struct {
	Fact   *storedFact         `json:"fact,omitempty"`
	Report train.AttemptReport `json:"report"`
	// NotStopped withdraws a stop answer.
	NotStopped bool `json:"not_stopped,omitempty"`
}

// storedFact is a fact with its body encoded.
type storedFact struct {
	Subject string          `json:"subject"`
	Key     string          `json:"key"`
	Time    time.Time       `json:"time"`
	Body    json.RawMessage `json:"body"`
}

// newEffect makes an effect; the report holds only what changes, besides job, attempt and whether the code spoke.
func newEffect(fact *event.Fact, at time.Time, report train.AttemptReport) (effect, error) {
	d := effect{Report: report}
	if fact == nil {
		return d, nil
	}
	body, err := fact.Encode()
	if err != nil {
		return d, err
	}
	d.Fact = &storedFact{Subject: fact.Subject.String(), Key: fact.Key, Time: at, Body: body}
	return d, nil
}

// key identifies the effect: a repeated request has the same key.
func (d effect) key() string {
	if d.Fact != nil {
		return d.Fact.Key
	}
	r := d.Report
	if d.NotStopped {
		return fmt.Sprintf("not_stopped/%s/%d", r.Job, r.Attempt)
	}
	if r.OutputRead {
		return fmt.Sprintf("output_read/%s/%d", r.Job, r.Attempt)
	}
	if r.Checkpoint != "" {
		return fmt.Sprintf("report/%s/%d/checkpoint/%d/%d/%s", r.Job, r.Attempt, r.CheckpointEpochs, r.CheckpointStep, r.Checkpoint)
	}
	return fmt.Sprintf("report/%s/%d/%d/%s", r.Job, r.Attempt, r.EpochsDone, r.Ended)
}

// merge adds a change to a record. It may be repeated, and the order of changes only matters for the outcome.
func merge(r, change train.AttemptReport) train.AttemptReport {
	r.Job, r.Attempt = change.Job, change.Attempt
	if change.Batch.LocalBatch > 0 && change.EpochsDone >= r.EpochsDone {
		r.Batch = change.Batch
	}
	r.EpochsDone = max(r.EpochsDone, change.EpochsDone)
	if change.Steps.At.After(r.Steps.At) {
		r.Steps = change.Steps
	}
	r.Spoke = r.Spoke || change.Spoke
	r.AnyStep = r.AnyStep || change.AnyStep
	r.StopAnswered = r.StopAnswered || change.StopAnswered
	r.OutputRead = r.OutputRead || change.OutputRead
	r.Enlarged = r.Enlarged || change.Enlarged
	if r.Signal != train.SignalSave {
		r.Signal = cmp.Or(change.Signal, r.Signal)
	}
	// A failed process is not outweighed by another process of the attempt that finished.
	if change.Ended != "" && r.Ended != endFailed {
		r.Ended = change.Ended
	}
	newer := cmp.Or(cmp.Compare(change.CheckpointEpochs, r.CheckpointEpochs), cmp.Compare(change.CheckpointStep, r.CheckpointStep)) >= 0
	if change.Checkpoint != "" && newer {
		r.Checkpoint, r.CheckpointEpochs, r.CheckpointStep = change.Checkpoint, change.CheckpointEpochs, change.CheckpointStep
		r.FoundCheckpoint = change.FoundCheckpoint
	}
	return r
}

// recorder makes what requests change durable: on the bus, or in the outbox while the bus is unreachable.
type recorder struct {
	bus     *bus.Bus
	reports *bus.KV[train.AttemptReport]
	box     *outbox.Box
	log     *slog.Logger
}

// busTimeout is how long a request waits for the bus before it uses the outbox.
const busTimeout = time.Second

// keep makes an effect durable: on the bus, or else on disk. While anything waits on disk, everything follows it
// there, which preserves the order.
func (r *recorder) keep(ctx context.Context, s *session, d effect) error {
	ctx = context.WithoutCancel(ctx) // a client that hangs up has still reported it
	var err error
	if r.box.Len() == 0 && r.bus.Ready() == nil {
		if err = r.deliver(ctx, d); err == nil {
			s.learn(d.Report)
			return nil
		}
	}
	if putErr := r.putAside(d); putErr != nil {
		return errors.Join(err, putErr)
	}
	s.learn(d.Report)
	return nil
}

// deliver stores an effect on the bus. The fact comes first, so that a record never mentions a fact that does not
// exist.
func (r *recorder) deliver(ctx context.Context, d effect) error {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	if err := r.publishFact(ctx, d); err != nil {
		return err
	}
	_, err := r.store(ctx, d)
	return err
}

// publishFact stores the fact of an effect, if it has one.
func (r *recorder) publishFact(ctx context.Context, d effect) error {
	if d.Fact == nil {
		return nil
	}
	subject, err := event.ParseSubject(d.Fact.Subject)
	if err != nil {
		return fmt.Errorf("%w: %w", outbox.ErrUnreadable, err)
	}
	return r.bus.Publish(ctx, event.Fact{Subject: subject, Key: d.Fact.Key, Time: d.Fact.Time, Body: d.Fact.Body})
}

// store merges the reports of effects into the record of their attempt. It writes in any case if one of them withdraws
// a stop answer: an answer that is still being written then fails by its revision.
func (r *recorder) store(ctx context.Context, effects ...effect) (train.AttemptReport, error) {
	of := effects[0].Report
	e, err := r.reports.Modify(ctx, contract.ReportKey(of.Job, of.Attempt), func(stored *train.AttemptReport) (bool, error) {
		merged, withdrawn := *stored, false
		for _, d := range effects {
			merged = merge(merged, d.Report)
			if d.NotStopped {
				merged.StopAnswered, withdrawn = false, true
			}
		}
		changed := withdrawn || merged != *stored
		*stored = merged
		return changed, nil
	})
	return e.Value, err
}

// load reads the record of an attempt once: an earlier agent may have written it.
func (r *recorder) load(ctx context.Context, s *session) {
	if s.isLoaded() {
		return
	}
	s.recording.Lock()
	defer s.recording.Unlock()
	if s.isLoaded() || r.box.Len() > 0 || r.bus.Ready() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	e, err := r.reports.Get(ctx, contract.ReportKey(s.attempt.Job, s.attempt.Number))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		r.log.Debug("report not read", "job", s.attempt.Job, "attempt", s.attempt.Number, "error", err)
		return
	}
	e.Value.Job, e.Value.Attempt = s.attempt.Job, s.attempt.Number
	s.learn(e.Value)
}

// noteSpoke records that the code of an attempt calls the agent at all. Every request retries it until it is stored.
func (r *recorder) noteSpoke(ctx context.Context, s *session) {
	r.note(ctx, s, train.AttemptReport{Spoke: true})
}

// note records something about an attempt, unless it is recorded already. It returns false if that is impossible now.
func (r *recorder) note(ctx context.Context, s *session, change train.AttemptReport) bool {
	change.Job, change.Attempt = s.attempt.Job, s.attempt.Number
	recorded := func() bool { known := s.known(); return merge(known, change) == known }
	if recorded() {
		return true
	}
	s.recording.Lock()
	defer s.recording.Unlock()
	if recorded() {
		return true
	}
	if r.box.Len() > 0 || r.bus.Ready() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), busTimeout)
	defer cancel()
	stored, err := r.store(ctx, effect{Report: change})
	if err != nil {
		r.log.Debug("report not written", "job", s.attempt.Job, "attempt", s.attempt.Number, "error", err)
		return false
	}
	s.learn(stored)
	return true
}

// withdrawStop removes a yes from the record although no process got it: the bus may have stored what it did not
// acknowledge.
func (r *recorder) withdrawStop(c call) {
	s := c.session
	d := effect{Report: train.AttemptReport{Job: s.attempt.Job, Attempt: s.attempt.Number, Spoke: !c.overheard}, NotStopped: true}
	if err := r.putAside(d); err != nil {
		r.log.Error("the record may have a stop answer that was not given", "job", s.attempt.Job, "attempt", s.attempt.Number, "error", err)
	}
}
