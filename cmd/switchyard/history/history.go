// Package history is what the bus remembers of a cluster: the facts of jobs, plans, nodes, models, and what plans were decided on. It is read from the bus
// or from a bundle (one file to hand to somebody else), and turned into a workload for the simulator.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner"
)

// History is what is known of a stretch of time.
type History struct {
	Manifest
	// Facts are those of every job that was not over when the stretch began, also from before it. Jobs that were never admitted are not among them.
	Facts []Fact
	// Plans are those of the stretch.
	Plans  []Fact
	Nodes  []train.Node
	Models []train.Model
	// Sightings are the cluster as the recorded decisions saw it, one for each change.
	Sightings []Sighting
	// Input is what a plan was decided on: the one that was asked for, else the newest. Nil where none is recorded.
	Input *planner.Input
	// Unreadable says of other inputs why this program cannot read them.
	Unreadable []error
}

// Manifest says what a history is of.
type Manifest struct {
	Version int       `json:"version"`
	MadeAt  time.Time `json:"made_at"`
	// Since is where the stretch begins; zero is as far back as the bus remembers.
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

// parsed gives the kind of a fact and its body; false for what is none, or comes from somebody who may not say it.
func (f Fact) parsed() (event.Kind, train.JobID, any, bool) {
	subject, err := event.ParseSubject(f.Subject)
	if err != nil {
		return event.Kind{}, "", nil, false
	}
	kind, known := event.Find(subject)
	if !known || kind.Publisher != "anyone" && kind.Publisher != f.Source {
		return event.Kind{}, "", nil, false
	}
	body, err := event.DecodeBody(kind, f.Body)
	return kind, train.JobID(subject.ID), body, err == nil
}

// FromBus reads the history since a time (zero: all that is kept). made is the present.
func FromBus(ctx context.Context, b *bus.Bus, since, made time.Time) (History, error) {
	h := History{Manifest: Manifest{Version: bundleVersion, MadeAt: made, Since: since}}
	var err error
	if h.Facts, err = readJobs(ctx, b, since); err != nil {
		return h, err
	}
	err = b.Stored(ctx, event.StreamPlans, nil, since, func(m bus.Message) {
		if f := stored(m); json.Valid(f.Body) {
			h.Plans = append(h.Plans, f)
		}
	})
	if err != nil {
		return h, err
	}
	if h.Nodes, err = list[train.Node](ctx, b, event.BucketNodes); err != nil {
		return h, err
	}
	if h.Models, err = list[train.Model](ctx, b, event.BucketModels); err != nil {
		return h, err
	}
	err = planner.ReadInputs(ctx, b, since, func(in planner.Input, err error) {
		if err == nil {
			h.take(in)
		} else {
			h.Unreadable = append(h.Unreadable, err)
		}
	})
	if err != nil || h.Input != nil || len(h.Unreadable) > 0 {
		return h, err
	}
	newest, err := planner.ReadInput(ctx, b, 0)
	if err == nil {
		h.take(newest)
	} else if !errors.Is(err, bus.ErrNotFound) {
		return h, err
	}
	return h, nil
}

// take adds a later input.
func (h *History) take(in planner.Input) {
	h.see(in.DecidedAt, in.State.Nodes)
	h.Input = &in
}

func list[T any](ctx context.Context, b *bus.Bus, bucket string) ([]T, error) {
	kv, err := bus.OpenKV[T](ctx, b, bucket)
	if err != nil {
		return nil, err
	}
	entries, err := kv.List(ctx)
	if err != nil {
		return nil, err
	}
	values := make([]T, len(entries))
	for i, e := range entries {
		values[i] = e.Value
	}
	return values, nil
}

// told are the facts of jobs that matter here.
func told() []string {
	return []string{
		event.FactSubmitted, event.FactAdmitted, event.FactQueued, event.FactPlanned, event.FactStarted, event.FactEpochEnded, event.FactStopRequested,
		event.FactPreempted, event.FactAttemptLost, event.FactCancelRequested, event.FactSucceeded, event.FactFailed, event.FactCancelled,
	}
}

// readJobs reads the facts of the jobs that were not over at a time. Of older ones nothing is kept in memory.
func readJobs(ctx context.Context, b *bus.Bus, since time.Time) ([]Fact, error) {
	var subjects []string
	for _, fact := range told() {
		subjects = append(subjects, event.Subject{Entity: "job", ID: "*", Fact: fact, Version: 1}.String())
	}
	byJob := map[train.JobID][]Fact{}
	admitted := map[train.JobID]bool{}
	err := b.Stored(ctx, event.StreamJobs, subjects, time.Time{}, func(m bus.Message) {
		f := stored(m)
		kind, id, _, ok := f.parsed()
		if !ok {
			return
		}
		if kind.Publisher == "anyone" {
			f.Time = m.Stored
		}
		if terminal(kind.Fact) && f.Time.Before(since) {
			delete(byJob, id)
			delete(admitted, id)
			return
		}
		admitted[id] = admitted[id] || kind.Fact == event.FactAdmitted
		byJob[id] = append(byJob[id], f)
	})
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

// Published finds the plan of an input among the plans: its bytes as they were published. bus.ErrNotFound where it is not among them.
func (h History) Published(in planner.Input) ([]byte, error) {
	for _, f := range h.Plans {
		if f.Sequence == in.PlanSequence {
			return f.Body, nil
		}
	}
	return nil, fmt.Errorf("read plan %d: %w", in.Generation, bus.ErrNotFound)
}
