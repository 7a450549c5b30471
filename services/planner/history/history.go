// Package history holds what the bus remembers of a cluster: the facts of jobs, plans, nodes, models, and the
// inputs of plans. It reads this from the bus or from a bundle (one file to hand to others), and turns it into a
// workload for the simulator.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// History is the record of a stretch of time.
type History struct {
	Manifest
	// Facts are those of every job that was not over when the stretch began, also older ones. Jobs that were never
	// admitted are left out.
	Facts []Fact
	// Plans are the plans of the stretch.
	Plans  []Fact
	Nodes  []train.Node
	Models []train.Model
	// Sightings are the cluster as the recorded decisions saw it, one for each change.
	Sightings []Sighting
	// Input is the input of the plan asked for, else of the newest plan; nil if none is recorded.
	Input *decision.Input
	// State is what a planner knows that reads its own history: it counts instead of Input. Nil in a bundle.
	State *plan.State
	// Unreadable holds the reasons why this program cannot read other inputs.
	Unreadable []error
}

// Manifest describes a history.
type Manifest struct {
	Version int       `json:"version"`
	MadeAt  time.Time `json:"made_at"`
	// Since is the start of the stretch; zero is as far back as the bus remembers.
	Since time.Time `json:"since,omitzero"`
	// Redacted says that secrets were taken out.
	Redacted bool `json:"redacted"`
}

// Fact is a stored fact.
type Fact struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	Source   string    `json:"source,omitempty"`
	Key      string    `json:"key,omitempty"`
	// Body is as it was published, byte for byte.
	Body json.RawMessage `json:"body"`
}

// parsed returns the kind of a fact and its body; false for other messages, and for facts from a service that may
// not publish them.
func (f Fact) parsed() (event.Kind, train.JobID, any, bool) {
	subject, err := event.ParseSubject(f.Subject)
	if err != nil {
		return event.Kind{}, "", nil, false
	}
	kind, known := event.Find(subject)
	if !known || !kind.Asked() && kind.Publisher != f.Source {
		return event.Kind{}, "", nil, false
	}
	body, err := event.DecodeBody(kind, f.Body)
	return kind, train.JobID(subject.ID), body, err == nil
}

// Scope says what to read and what the reader knows already.
type Scope struct {
	// Since is how far back to read (zero: all that is kept), Made the present.
	Since, Made time.Time
	Nodes       []train.Node
	Models      []train.Model
	// State is what the planner knows that reads.
	State *plan.State
	// MostFacts bounds the facts of jobs that are kept in memory; 0 is no bound.
	MostFacts int
}

// ErrTooMuch says that more facts are recorded than Scope.MostFacts.
var ErrTooMuch = errors.New("too much is recorded in this time")

// FromBus reads the history since a time (zero: all that is kept). made is the present.
func FromBus(ctx context.Context, b *bus.Bus, since, made time.Time) (History, error) {
	nodes, err := list(ctx, b, contract.Nodes)
	if err != nil {
		return History{}, err
	}
	models, err := list(ctx, b, contract.Models)
	if err != nil {
		return History{}, err
	}
	return Read(ctx, b, Scope{Since: since, Made: made, Nodes: nodes, Models: models})
}

// Read reads the recorded facts, plans and decisions.
func Read(ctx context.Context, b *bus.Bus, s Scope) (History, error) {
	h := History{
		Manifest: Manifest{Version: bundleVersion, MadeAt: s.Made, Since: s.Since}, Nodes: s.Nodes, Models: s.Models, State: s.State,
	}
	var err error
	if h.Facts, err = readJobs(ctx, b, s); err != nil {
		return h, err
	}
	err = b.Stored(ctx, event.StreamPlans, nil, s.Since, func(m bus.Message) {
		if f := stored(m); json.Valid(f.Body) {
			h.Plans = append(h.Plans, f)
		}
	})
	if err != nil {
		return h, err
	}
	err = decision.ReadInputs(ctx, b, s.Since, func(in decision.Input, err error) {
		if err == nil {
			h.take(in)
		} else {
			h.Unreadable = append(h.Unreadable, err)
		}
	})
	if err != nil || h.Input != nil || len(h.Unreadable) > 0 {
		return h, err
	}
	newest, err := decision.ReadInput(ctx, b, 0)
	if err == nil {
		h.take(newest)
	} else if !errors.Is(err, bus.ErrNotFound) {
		return h, err
	}
	return h, nil
}

// take adds a later input.
func (h *History) take(in decision.Input) {
	h.see(in.DecidedAt, in.State.Offered())
	h.Input = &in
}

func list[T any](ctx context.Context, b *bus.Bus, bucket contract.Bucket[T]) ([]T, error) {
	kv, err := bus.OpenKV(ctx, b, bucket)
	if err != nil {
		return nil, err
	}
	entries, err := kv.List(ctx)
	return bus.Values(entries), err
}

// told lists the facts of jobs that matter here.
func told() []string {
	return []string{
		event.FactSubmitted, event.FactAdmitted, event.FactTuned, event.FactQueued, event.FactPlanned, event.FactStarted, event.FactEpochEnded, event.FactStopRequested,
		event.FactEditDecided, event.FactPreempted, event.FactAttemptLost, event.FactCancelRequested, event.FactSucceeded, event.FactFailed, event.FactCancelled,
	}
}

// readJobs reads the facts of the jobs that were not over at the start. It keeps nothing of older jobs in memory.
func readJobs(ctx context.Context, b *bus.Bus, s Scope) ([]Fact, error) {
	reading, enough := context.WithCancel(ctx)
	defer enough()
	count := 0
	var subjects []string
	for _, fact := range told() {
		subjects = append(subjects, event.Subject{Entity: "job", ID: "*", Fact: fact, Version: 1}.String())
	}
	byJob := map[train.JobID][]Fact{}
	admitted := map[train.JobID]bool{}
	err := b.Stored(reading, event.StreamJobs, subjects, time.Time{}, func(m bus.Message) {
		f := stored(m)
		kind, id, _, ok := f.parsed()
		if !ok {
			return
		}
		if kind.Asked() {
			f.Time = m.Stored
		}
		if terminal(kind.Fact) && f.Time.Before(s.Since) {
			count -= len(byJob[id])
			delete(byJob, id)
			delete(admitted, id)
			return
		}
		admitted[id] = admitted[id] || kind.Fact == event.FactAdmitted
		byJob[id] = append(byJob[id], f)
		if count++; s.MostFacts > 0 && count > s.MostFacts {
			enough()
		}
	})
	if s.MostFacts > 0 && count > s.MostFacts {
		return nil, ErrTooMuch
	}
	if err != nil {
		return nil, err
	}
	var facts []Fact
	for id, some := range byJob {
		if admitted[id] {
			facts = append(facts, some...)
		}
	}
	sortFacts(facts)
	return facts, nil
}

func terminal(fact string) bool {
	return fact == event.FactSucceeded || fact == event.FactFailed || fact == event.FactCancelled
}

func stored(m bus.Message) Fact {
	return Fact{Subject: m.Subject, Sequence: m.Sequence, Time: m.Time, Source: m.Source, Key: m.Key, Body: m.Data}
}

// Published returns the plan of an input, as it was published. bus.ErrNotFound if it is not among the plans.
func (h History) Published(in decision.Input) ([]byte, error) {
	for _, f := range h.Plans {
		if f.Sequence == in.PlanSequence {
			return f.Body, nil
		}
	}
	return nil, fmt.Errorf("read plan %d: %w", in.Generation, bus.ErrNotFound)
}
