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
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/throttle"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// conductor enters messages into the records of experiments and carries out what follows. It writes a record before it
// acts, and may repeat every action, so it continues wherever it was killed.
type conductor struct {
	bus      *bus.Bus
	log      *slog.Logger
	records  *bus.KV[contract.ExperimentRecord]
	settings *bus.KV[train.Setting]
	progress *bus.KV[train.EnergyProgress]
	accounts *bus.KV[train.Account]
	profiles *bus.KV[contract.GroundTruth]
	nodes    *bus.KV[train.Node]
	now      func() time.Time
	// rates bound what users of the bus ask for.
	rates *throttle.Rates

	// mu is held while an experiment advances: two streams and the clock advance it.
	mu sync.Mutex
	// running holds the experiments that are not over; nil before the bucket was read.
	running map[string]bus.Entry[contract.ExperimentRecord]
	// wanted holds the settings this process has stored, asked the facts it has published.
	wanted    map[train.JobID]train.Setting
	published map[event.Subject]bool
}

func newConductor(ctx context.Context, b *bus.Bus, log *slog.Logger) (*conductor, error) {
	c := &conductor{
		bus: b, log: log, now: func() time.Time { return time.Now().UTC() }, rates: throttle.New(),
		running: map[string]bus.Entry[contract.ExperimentRecord]{}, wanted: map[train.JobID]train.Setting{}, published: map[event.Subject]bool{},
	}
	err := errors.Join(
		bus.Open(ctx, b, contract.Experiments, &c.records), bus.Open(ctx, b, contract.Settings, &c.settings),
		bus.Open(ctx, b, contract.EnergyProgress, &c.progress), bus.Open(ctx, b, contract.Accounts, &c.accounts),
		bus.Open(ctx, b, contract.Profiles, &c.profiles), bus.Open(ctx, b, contract.Nodes, &c.nodes),
	)
	if err != nil {
		return nil, err
	}
	entries, err := c.records.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if unfinished(conduct.Record(e.Value)) {
			c.running[e.Key] = e
		}
	}
	return c, nil
}

// unfinished reports whether an experiment needs further work.
func unfinished(r conduct.Record) bool { return !r.Published || !r.Settled() }

// open returns the ids of unfinished experiments.
func (c *conductor) open() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]string, 0, len(c.running))
	for id := range c.running {
		ids = append(ids, id)
	}
	return ids
}

// handleExperiment handles a fact about an experiment.
func (c *conductor) handleExperiment(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	kind, known := event.Find(m.Parsed)
	if m.ParseErr != nil || !known {
		return nil, fmt.Errorf("%w: UnknownFact: %s", bus.ErrPoison, m.Subject)
	}
	id := m.Parsed.ID
	if err := c.inTime(m, kind); err != nil {
		return nil, err
	}
	switch m.Parsed.Fact {
	case event.FactSubmitted:
		return c.submitted(ctx, id, m)
	case event.FactStopRequested:
		body, err := event.Decode[event.ExperimentStopRequested](m.Data)
		if err == nil {
			_, err = bus.Asked(m, &body)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", bus.ErrPoison, err)
		}
		return nil, c.enter(ctx, id, m, func(r *conduct.Record) { r.Stop(stopMessage(body), m.Stored) })
	default:
		body, err := event.Decode[event.Retuned](m.Data)
		if err != nil || m.Source != kind.Publisher {
			return nil, fmt.Errorf("%w: %s of %.80q: %w", bus.ErrPoison, m.Subject, m.Source, err)
		}
		return nil, c.enter(ctx, id, m, func(r *conduct.Record) { r.Retuned(body.Applied) })
	}
}

// inTime returns poison for a request of the users of the bus, who share one key, if they ask too often together. Web
// bounds each person before.
func (c *conductor) inTime(m bus.Message, kind event.Kind) error {
	who, err := m.Asker()
	if err != nil || who.Role != identity.User || !kind.Asked() {
		return nil //nolint:nilerr // a request without a proof is refused as that
	}
	const most = access.RequestsPerMinute
	wait, taken := c.rates.Take(bus.Stranger, most, m.Stored)
	if taken {
		return nil
	}
	return fmt.Errorf("%w: TooManyRequests: %s asks for something more than %d times in a minute: ask again in %.0f s", bus.ErrPoison, bus.Stranger, most, math.Ceil(wait.Seconds()))
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
		return rejected(id, train.Reason{Code: "InvalidExperiment", Message: err.Error()}), nil
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
		lacking, err := c.lacks(ctx, e.Power)
		if err == nil && lacking.Code != "" {
			return rejected(id, lacking), nil
		}
		if err == nil {
			err = c.begin(ctx, id, e, hash, m)
		}
		return nil, err
	case err != nil:
		return nil, err
	case there.Value.Hash == hash || there.Value.Folded[event.StreamTune] > m.Sequence:
		return nil, nil
	}
	message := fmt.Sprintf("the id %s is taken by another experiment (%s): a second, different one was ignored", id,
		there.Value.SubmittedAt.Format(time.RFC3339))
	return []event.Fact{event.TuneFact(id, event.FactConflicted, fmt.Sprintf("conflicted/%d", m.Sequence), event.Conflicted{Message: message})}, nil
}

func rejected(id string, why train.Reason) []event.Fact {
	return []event.Fact{event.TuneOnceFact(id, event.FactRejected, event.Rejected{Reasons: []train.Reason{why}, Message: why.Message})}
}

// lacks explains which of the nodes that an experiment names is unknown, or has no such meter; without a code none is
// missing. Without nodes some node has to have the meter.
func (c *conductor) lacks(ctx context.Context, p *contract.PowerMeter) (train.Reason, error) {
	if p == nil {
		return train.Reason{}, nil
	}
	entries, err := c.nodes.List(ctx)
	if err != nil {
		return train.Reason{}, err
	}
	nodes := make([]train.Node, len(entries))
	for i, e := range entries {
		nodes[i] = e.Value
	}
	return conduct.Lacks(*p, nodes), nil
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
			earlier = append(earlier, conduct.Record(entry.Value))
		}
		r.Recur(earlier)
	}
	c.log.Info("experiment begins", "experiment", id, "algorithm", e.Search.Algorithm, "mode", e.Mode, "trials", e.Search.Trials)
	c.running[id] = bus.Entry[contract.ExperimentRecord]{Key: id, Value: contract.ExperimentRecord(r)}
	defer func() {
		if c.running[id].Revision == 0 { // not stored: the submission comes again or goes to POISON
			delete(c.running, id)
		}
	}()
	return c.moveOn(ctx, id, func(*conduct.Record) {})
}

// decodeExperiment decodes a submission as strictly as a file.
func decodeExperiment(id string, data []byte) (file.Experiment, error) {
	var body event.ExperimentSubmitted
	var e file.Experiment
	if err := decodeStrictly(data, &body); err != nil {
		return e, fmt.Errorf("read the submission: %w", err)
	}
	if err := decodeStrictly(body.Experiment, &e); err != nil {
		return e, fmt.Errorf("read the experiment: %w", err)
	}
	return e, conduct.Check(id, e)
}

// decodeStrictly keeps empty lists apart from missing ones: costs without a name mean that no parameter changes the
// cost of an epoch.
func decodeStrictly(data []byte, v any) error {
	r := strict.New(strict.Options{MaxBytes: event.MaxBodyBytes, Nulls: true, KeepEmpty: true})
	if root, ok := r.JSON(data); ok {
		r.Bind(root, "", v)
	}
	return r.Err()
}

func hashOf(e file.Experiment) (string, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("hash experiment %s: %w", e.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// handleJob handles a fact about a job if it is the job of a trial.
func (c *conductor) handleJob(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	id, _, ok := contract.SplitTrialJob(m.Parsed.ID)
	if !ok {
		return nil, nil
	}
	kind, known := event.Find(m.Parsed)
	if !known || m.Source != kind.Publisher {
		return nil, nil // admission moves such facts to POISON
	}
	body, err := event.DecodeBody(kind, m.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: InvalidBody: %w", bus.ErrPoison, err)
	}
	job := train.JobID(m.Parsed.ID)
	err = c.enter(ctx, id, m, func(r *conduct.Record) {
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
		err = c.poll(ctx, id) // the measurements may be there by now
	}
	return nil, err
}

// undecided reports whether a decision waits for measurements.
func (c *conductor) undecided(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := conduct.Record(c.running[id].Value)
	return r.Undecided()
}

// enter enters a message into the record of an experiment, once.
func (c *conductor) enter(ctx context.Context, id string, m bus.Message, change func(*conduct.Record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.running[id]; !open {
		return c.enterLate(ctx, id, m, change)
	}
	return c.moveOn(ctx, id, func(r *conduct.Record) {
		if !r.Seen(streamOf(m), m.Sequence) {
			change(r)
		}
	})
}

// enterLate enters a fact about an experiment that no longer runs: facts of the other stream may have ended it first.
func (c *conductor) enterLate(ctx context.Context, id string, m bus.Message, change func(*conduct.Record)) error {
	there, err := c.records.Get(ctx, id)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	r := conduct.Record(there.Value)
	if r.Seen(streamOf(m), m.Sequence) {
		return nil
	}
	change(&r)
	_, err = c.records.Swap(ctx, id, contract.ExperimentRecord(r), there.Revision)
	return err
}

func streamOf(m bus.Message) string {
	if m.Parsed.Entity == "tune" {
		return event.StreamTune
	}
	return event.StreamJobs
}

// poll advances an experiment by the clock and the ledger. An experiment that panics is suspended until the next start:
// it must not stop the others.
func (c *conductor) poll(ctx context.Context, id string) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			delete(c.running, id)
			err = fmt.Errorf("%w: experiment %s is suspended: %v\n%s", bus.ErrPoison, id, p, debug.Stack())
		}
	}()
	e, open := c.running[id]
	if !open {
		return nil
	}
	usages, err := c.usages(ctx, conduct.Record(e.Value))
	if err != nil {
		return err
	}
	profiles, err := c.profilesOf(ctx, conduct.Record(e.Value))
	if err != nil {
		return err
	}
	return c.moveOn(ctx, id, func(r *conduct.Record) {
		for job, p := range profiles {
			r.Profiled(job, p)
		}
		for _, b := range usages {
			r.Metered(b.job, b.progress, b.account, c.now())
		}
	})
}

// usage is the ledger's data on a job.
type usage struct {
	job      train.JobID
	progress train.EnergyProgress
	account  train.Account
}

// usages reads the energy of trials whose data is still incomplete.
func (c *conductor) usages(ctx context.Context, r conduct.Record) ([]usage, error) {
	var usages []usage
	for i := range r.Trials {
		t := &r.Trials[i]
		if !t.Ran() || t.Closed || t.State == search.Paused && t.Joules() > 0 {
			continue
		}
		progress, err := c.progress.Get(ctx, contract.EnergyProgressKey(t.Job))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return nil, err
		}
		account, err := c.accounts.Get(ctx, contract.AccountKey(t.Job))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return nil, err
		}
		usages = append(usages, usage{t.Job, progress.Value, account.Value})
	}
	return usages, nil
}

// moveOn changes a record, decides what follows, stores both and carries it out.
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

// keep stores a changed record. After a conflict it reads the stored one: another process may have led in between.
func (c *conductor) keep(ctx context.Context, id string, r conduct.Record, before []byte) error {
	e := c.running[id]
	after, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode experiment %s: %w", id, err)
	}
	if e.Revision > 0 && bytes.Equal(before, after) {
		return nil
	}
	revision, err := c.records.Swap(ctx, id, contract.ExperimentRecord(r), e.Revision)
	if err != nil {
		if there, getErr := c.records.Get(ctx, id); getErr == nil {
			c.running[id] = there
		}
		return fmt.Errorf("store experiment %s: %w", id, err)
	}
	c.running[id] = bus.Entry[contract.ExperimentRecord]{Key: id, Value: contract.ExperimentRecord(r), Revision: revision}
	return nil
}
