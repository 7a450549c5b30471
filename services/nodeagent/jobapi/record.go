package jobapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
)

// deed is what a request changes: a fact, the record of the attempt, or both. It is also the form in which the outbox keeps it.
type deed struct {
	Fact   *storedFact         `json:"fact,omitempty"`
	Report train.AttemptReport `json:"report"`
	// NotStopped takes back that a stop was told.
	NotStopped bool `json:"not_stopped,omitempty"`
}

// storedFact is a fact with its body encoded.
type storedFact struct {
	Subject string          `json:"subject"`
	Key     string          `json:"key"`
	Time    time.Time       `json:"time"`
	Body    json.RawMessage `json:"body"`
}

// newDeed makes a deed; the report holds only what changes beside job, attempt and whether the code spoke.
func newDeed(fact *event.Fact, at time.Time, report train.AttemptReport) (deed, error) {
	d := deed{Report: report}
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

// key names the deed: the same request repeated has the same key.
func (d deed) key() string {
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
	return fmt.Sprintf("report/%s/%d/%d/%s", r.Job, r.Attempt, r.EpochsDone, r.Ended)
}

// reportKey is the key of an attempt's record in its bucket.
func reportKey(job train.JobID, attempt int) string { return fmt.Sprintf("%s.%d", job, attempt) }

// merge adds to a record what a change says. It can be repeated, and the order of changes matters only for the last word.
func merge(r, change train.AttemptReport) train.AttemptReport {
	r.Job, r.Attempt = change.Job, change.Attempt
	r.EpochsDone = max(r.EpochsDone, change.EpochsDone)
	r.Spoke = r.Spoke || change.Spoke
	r.StopAnswered = r.StopAnswered || change.StopAnswered
	r.OutputRead = r.OutputRead || change.OutputRead
	r.Enlarged = r.Enlarged || change.Enlarged
	// A process that failed is not made good by another one of the attempt that finished.
	if change.Ended != "" && r.Ended != endFailed {
		r.Ended = change.Ended
	}
	if change.Checkpoint != "" && change.CheckpointEpochs >= r.CheckpointEpochs {
		r.Checkpoint, r.CheckpointEpochs = change.Checkpoint, change.CheckpointEpochs
	}
	return r
}

// patience is how long a request waits for the bus before it relies on the outbox.
const patience = time.Second

// keep makes a deed durable: at the bus, or else on disk. While something waits on disk everything follows it there, so that the order stays.
func (a *API) keep(ctx context.Context, s *session, d deed) error {
	ctx = context.WithoutCancel(ctx) // a client that hangs up has still said it
	var err error
	if a.box.Len() == 0 && a.bus.Ready() == nil {
		if err = a.deliver(ctx, d); err == nil {
			s.learn(d.Report)
			return nil
		}
	}
	data, encodeErr := json.Marshal(d)
	if encodeErr != nil {
		return fmt.Errorf("encode %s: %w", d.key(), encodeErr)
	}
	if putErr := a.box.Put(d.key(), data); putErr != nil {
		return errors.Join(err, putErr)
	}
	s.learn(d.Report)
	return nil
}

// deliver stores a deed at the bus: the fact first, so that a record never tells of a fact that nobody has.
func (a *API) deliver(ctx context.Context, d deed) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if d.Fact != nil {
		subject, err := event.ParseSubject(d.Fact.Subject)
		if err != nil {
			return fmt.Errorf("%w: %w", outbox.ErrUnreadable, err)
		}
		if err := a.bus.Publish(ctx, event.Fact{Subject: subject, Key: d.Fact.Key, Time: d.Fact.Time, Body: d.Fact.Body}); err != nil {
			return err
		}
	}
	if d.NotStopped {
		return a.storeNotStopped(ctx, d.Report)
	}
	_, err := a.store(ctx, d.Report)
	return err
}

// storeNotStopped writes in any case: a yes that is still under way then comes too late, by its revision.
func (a *API) storeNotStopped(ctx context.Context, change train.AttemptReport) error {
	_, err := a.reports.Modify(ctx, reportKey(change.Job, change.Attempt), func(r *train.AttemptReport) (bool, error) {
		*r = merge(*r, change)
		r.StopAnswered = false
		return true, nil
	})
	return err
}

// DeliverKept stores what the outbox kept.
func (a *API) DeliverKept(ctx context.Context, data []byte) error {
	var d deed
	if err := json.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("%w: %w", outbox.ErrUnreadable, err)
	}
	if err := a.bus.Ready(); err != nil {
		return err
	}
	return a.deliver(ctx, d)
}

// store merges a change into the record of an attempt.
func (a *API) store(ctx context.Context, change train.AttemptReport) (train.AttemptReport, error) {
	e, err := a.reports.Modify(ctx, reportKey(change.Job, change.Attempt), func(r *train.AttemptReport) (bool, error) {
		merged := merge(*r, change)
		changed := merged != *r
		*r = merged
		return changed, nil
	})
	return e.Value, err
}

// load reads the record of an attempt once: a process before this one may have written it.
func (a *API) load(ctx context.Context, s *session) {
	if s.isLoaded() {
		return
	}
	s.recording.Lock()
	defer s.recording.Unlock()
	if s.isLoaded() || a.box.Len() > 0 || a.bus.Ready() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := a.reports.Get(ctx, reportKey(s.attempt.Job, s.attempt.Number))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		a.log.Debug("report not read", "job", s.attempt.Job, "attempt", s.attempt.Number, "error", err)
		return
	}
	e.Value.Job, e.Value.Attempt = s.attempt.Job, s.attempt.Number
	s.learn(e.Value)
}

// noteSpoke records that the code of an attempt talks to the agent at all. It is tried with every request until it is stored.
func (a *API) noteSpoke(ctx context.Context, s *session) {
	a.note(ctx, s, train.AttemptReport{})
}

// note records something of an attempt whose code talks, unless it is recorded already. It is false where that cannot be done now.
func (a *API) note(ctx context.Context, s *session, change train.AttemptReport) bool {
	change.Job, change.Attempt, change.Spoke = s.attempt.Job, s.attempt.Number, true
	noted := func() bool { known := s.known(); return merge(known, change) == known }
	if noted() {
		return true
	}
	s.recording.Lock()
	defer s.recording.Unlock()
	if noted() {
		return true
	}
	if a.box.Len() > 0 || a.bus.Ready() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	r, err := a.store(ctx, change)
	if err != nil {
		a.log.Debug("report not written", "job", s.attempt.Job, "attempt", s.attempt.Number, "error", err)
		return false
	}
	s.learn(r)
	return true
}
