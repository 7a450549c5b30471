package experiments

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// conductor enters what it hears in the records of experiments and does what follows. A record is written before anything is done, and all that is done may be
// done again, so it goes on wherever it was killed.
type conductor struct {
	bus      *bus.Bus
	log      *slog.Logger
	records  *bus.KV[conduct.Record]
	settings *bus.KV[train.Setting]
	courses  *bus.KV[train.Course]
	accounts *bus.KV[train.Account]
	profiles *bus.KV[profile.Store]
	now      func() time.Time

	// mu is held while an experiment is moved on: two streams and the clock do that.
	mu sync.Mutex
	// running are the experiments that are not over; nil before the bucket was read.
	running map[string]bus.Entry[conduct.Record]
	// wanted are the settings that this process has stored, asked the facts that it has published.
	wanted map[train.JobID]train.Setting
	asked  map[event.Subject]bool
}

func newConductor(ctx context.Context, b *bus.Bus, log *slog.Logger) (*conductor, error) {
	c := &conductor{
		bus: b, log: log, now: func() time.Time { return time.Now().UTC() },
		running: map[string]bus.Entry[conduct.Record]{}, wanted: map[train.JobID]train.Setting{}, asked: map[event.Subject]bool{},
	}
	var errs [5]error
	c.records, errs[0] = bus.OpenKV[conduct.Record](ctx, b, event.BucketExperiments)
	c.settings, errs[1] = bus.OpenKV[train.Setting](ctx, b, event.BucketSettings)
	c.courses, errs[2] = bus.OpenKV[train.Course](ctx, b, event.BucketLedger)
	c.accounts, errs[3] = bus.OpenKV[train.Account](ctx, b, event.BucketLedger)
	c.profiles, errs[4] = bus.OpenKV[profile.Store](ctx, b, event.BucketProfiles)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	entries, err := c.records.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if unfinished(e.Value) {
			c.running[e.Key] = e
		}
	}
	return c, nil
}

// unfinished says whether there is something left to do for an experiment.
func unfinished(r conduct.Record) bool { return !r.Told || !r.Settled() }

// open lists the experiments that there is something to do for.
func (c *conductor) open() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]string, 0, len(c.running))
	for id := range c.running {
		ids = append(ids, id)
	}
	return ids
}

// handleExperiment takes what is said of an experiment.
func (c *conductor) handleExperiment(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	kind, known := event.Find(m.Parsed)
	if m.ParseErr != nil || !known {
		return nil, fmt.Errorf("%w: UnknownFact: %s", bus.ErrPoison, m.Subject)
	}
	id := m.Parsed.ID
	switch m.Parsed.Fact {
	case event.FactSubmitted:
		return c.submitted(ctx, id, m)
	case event.FactStopRequested:
		body, err := event.Decode[event.ExperimentStopRequested](m.Data)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", bus.ErrPoison, err)
		}
		return nil, c.tell(ctx, id, m, func(r *conduct.Record) { r.Stop(stopMessage(body), m.Stored) })
	default:
		body, err := event.Decode[event.Retuned](m.Data)
		if err != nil || m.Source != kind.Publisher {
			return nil, fmt.Errorf("%w: %s of %.80q: %w", bus.ErrPoison, m.Subject, m.Source, err)
		}
		return nil, c.tell(ctx, id, m, func(r *conduct.Record) { r.Retuned(body.Applied) })
	}
}

func stopMessage(b event.ExperimentStopRequested) string {
	message := "stopped"
	if b.By != "" {
		message += " by " + b.By
	}
	if b.Reason != "" {
		message += ": " + b.Reason
	}
	return message
}

// submitted opens the record of an experiment, or answers a repetition.
func (c *conductor) submitted(ctx context.Context, id string, m bus.Message) ([]event.Fact, error) {
	e, err := decodeExperiment(id, m.Data)
	if err != nil {
		body := event.Rejected{Reasons: []train.Reason{{Code: "InvalidExperiment", Message: err.Error()}}, Message: err.Error()}
		return []event.Fact{event.TuneOnceFact(id, event.FactRejected, body)}, nil
	}
	hash, err := hashOf(e)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	there, err := c.records.Get(ctx, id)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, c.begin(ctx, id, e, hash, m)
	case err != nil:
		return nil, err
	case there.Value.Hash == hash || there.Value.Folded[event.StreamTune] > m.Sequence:
		return nil, nil
	}
	message := fmt.Sprintf("the id %s is taken by another experiment (%s): a second, different one was ignored", id, there.Value.SubmittedAt.Format(time.RFC3339))
	return []event.Fact{event.TuneFact(id, event.FactConflicted, fmt.Sprintf("conflicted/%d", m.Sequence), event.Conflicted{Message: message})}, nil
}

func (c *conductor) begin(ctx context.Context, id string, e file.Experiment, hash string, m bus.Message) error {
	r := conduct.New(id, e, hash, m.Stored)
	r.Seen(event.StreamTune, m.Sequence)
	if e.Group != "" {
		entries, err := c.records.List(ctx)
		if err != nil {
			return err
		}
		var earlier []conduct.Record
		for _, entry := range entries {
			earlier = append(earlier, entry.Value)
		}
		r.Recur(earlier)
	}
	c.log.Info("experiment begins", "experiment", id, "algorithm", e.Search.Algorithm, "mode", e.Mode, "trials", e.Search.Trials)
	c.running[id] = bus.Entry[conduct.Record]{Key: id, Value: r}
	defer func() {
		if c.running[id].Revision == 0 { // not stored: the submission comes again or is set aside
			delete(c.running, id)
		}
	}()
	return c.moveOn(ctx, id, func(*conduct.Record) {})
}

// decodeExperiment reads a submission as strictly as a file is read.
func decodeExperiment(id string, data []byte) (file.Experiment, error) {
	var body event.ExperimentSubmitted
	var e file.Experiment
	if err := strict(data, &body); err != nil {
		return e, fmt.Errorf("read the submission: %w", err)
	}
	if err := strict(body.Experiment, &e); err != nil {
		return e, fmt.Errorf("read the experiment: %w", err)
	}
	return e, conduct.Check(id, e)
}

func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func hashOf(e file.Experiment) (string, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("hash experiment %s: %w", e.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// handleJob takes what becomes of a job, if it is that of a trial.
func (c *conductor) handleJob(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	id, _, ok := conduct.SplitJobID(m.Parsed.ID)
	if !ok {
		return nil, nil
	}
	kind, known := event.Find(m.Parsed)
	if !known || m.Source != kind.Publisher {
		return nil, nil // admission sets such facts aside
	}
	body, err := event.DecodeBody(kind, m.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: InvalidBody: %w", bus.ErrPoison, err)
	}
	job := train.JobID(m.Parsed.ID)
	err = c.tell(ctx, id, m, func(r *conduct.Record) {
		switch b := body.(type) {
		case *event.Started:
			r.Started(job, m.Time)
		case *event.EpochEnded:
			r.EpochEnded(job, *b, m.Time)
		case *event.Succeeded:
			r.JobEnded(job, train.StateSucceeded, b.Note, m.Time)
		case *event.AttemptLost:
			r.AttemptLost(job, b.Attempt, b.Exit, b.Enlarged)
		case *event.Failed:
			r.AttemptLost(job, b.Attempt, b.Exit, b.Enlarged)
			r.JobEnded(job, train.StateFailed, b.Reason.Message, m.Time)
		case *event.Cancelled:
			r.JobEnded(job, train.StateCancelled, "", m.Time)
		case *event.Rejected:
			r.JobEnded(job, train.StateRejected, b.Message, m.Time)
		}
	})
	if err == nil && c.undecided(id) {
		err = c.look(ctx, id) // what was measured may be there by now
	}
	return nil, err
}

// undecided says whether a decision waits for what is measured.
func (c *conductor) undecided(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.running[id]
	return e.Value.Undecided()
}

// tell enters a message in the record of an experiment, once.
func (c *conductor) tell(ctx context.Context, id string, m bus.Message, change func(*conduct.Record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.running[id]; !open {
		return nil
	}
	return c.moveOn(ctx, id, func(r *conduct.Record) {
		if !r.Seen(streamOf(m), m.Sequence) {
			change(r)
		}
	})
}

func streamOf(m bus.Message) string {
	if m.Parsed.Entity == "tune" {
		return event.StreamTune
	}
	return event.StreamJobs
}

// look moves an experiment on by the clock and by what the ledger says. One that panics is set aside until the next start: it must not stop the others.
func (c *conductor) look(ctx context.Context, id string) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			delete(c.running, id)
			err = fmt.Errorf("%w: experiment %s is set aside: %v\n%s", bus.ErrPoison, id, p, debug.Stack())
		}
	}()
	e, open := c.running[id]
	if !open {
		return nil
	}
	bills, err := c.bills(ctx, e.Value)
	if err != nil {
		return err
	}
	profiles, err := c.profilesOf(ctx, e.Value)
	if err != nil {
		return err
	}
	return c.moveOn(ctx, id, func(r *conduct.Record) {
		for job, p := range profiles {
			r.Profiled(job, p)
		}
		for _, b := range bills {
			r.Metered(b.job, b.course, b.account, c.now())
		}
	})
}

// bill is what the ledger says of a job.
type bill struct {
	job     train.JobID
	course  train.Course
	account train.Account
}

// bills reads what trials have used of which more is to be known.
func (c *conductor) bills(ctx context.Context, r conduct.Record) ([]bill, error) {
	var bills []bill
	for i := range r.Trials {
		t := &r.Trials[i]
		if len(t.Done) == 0 || t.Closed || t.State == search.Paused && t.Joules() > 0 {
			continue
		}
		course, err := c.courses.Get(ctx, "course."+string(t.Job))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return nil, err
		}
		account, err := c.accounts.Get(ctx, "job."+string(t.Job))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return nil, err
		}
		bills = append(bills, bill{t.Job, course.Value, account.Value})
	}
	return bills, nil
}

// moveOn changes a record, decides what follows, stores both and does it.
func (c *conductor) moveOn(ctx context.Context, id string, change func(*conduct.Record)) error {
	e := c.running[id]
	before, err := json.Marshal(e.Value)
	if err != nil {
		return fmt.Errorf("encode experiment %s: %w", id, err)
	}
	r, err := copyOf(before)
	if err != nil {
		return err
	}
	change(&r)
	known, err := c.learn(ctx, &r)
	if err != nil {
		return err
	}
	if err := r.Decide(known, c.now()); err != nil {
		return fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	if err := c.keep(ctx, id, r, before); err != nil {
		return err
	}
	return c.act(ctx, id)
}

func copyOf(record []byte) (conduct.Record, error) {
	var r conduct.Record
	if err := json.Unmarshal(record, &r); err != nil {
		return r, fmt.Errorf("decode experiment: %w", err)
	}
	return r, nil
}

// keep stores a record that has changed. After a conflict what is there is read: another process may have had its turn.
func (c *conductor) keep(ctx context.Context, id string, r conduct.Record, before []byte) error {
	e := c.running[id]
	after, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode experiment %s: %w", id, err)
	}
	if e.Revision > 0 && bytes.Equal(before, after) {
		return nil
	}
	revision, err := c.records.Swap(ctx, id, r, e.Revision)
	if err != nil {
		if there, getErr := c.records.Get(ctx, id); getErr == nil {
			c.running[id] = there
		}
		return fmt.Errorf("keep experiment %s: %w", id, err)
	}
	c.running[id] = bus.Entry[conduct.Record]{Key: id, Value: r, Revision: revision}
	return nil
}
