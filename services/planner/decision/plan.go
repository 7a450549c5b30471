// Package decision encodes and decodes what the planner publishes: plans, and the recorded input that each plan
// follows from.
package decision

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// publisher is the service whose plans count.
	publisher = "planner"
	// FarthestLeap bounds how far the generation of a plan may be ahead of the one before. Planners count by one; a
	// number near the end of the range would have every later plan refused. Executors have the same bound.
	FarthestLeap = 1 << 40
	// LastGeneration is where counting ends.
	LastGeneration = 1 << 63
)

// Subject is the subject of plans.
func Subject() event.Subject {
	return event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}
}

// ReadPlan reads a plan from a message as executors do. highest is the generation of the newest plan before it.
func ReadPlan(m bus.Message, highest uint64) (train.Plan, error) {
	if m.Source != "" && m.Source != publisher {
		return train.Plan{}, fmt.Errorf("read plan %d: it comes from %.80q", m.Sequence, m.Source)
	}
	decided, err := event.Decode[event.PlanDecided](m.Data)
	if err != nil {
		return train.Plan{}, fmt.Errorf("read plan %d: %w", m.Sequence, err)
	}
	if g := decided.Generation; g == 0 || g < highest || g-highest > FarthestLeap || g > LastGeneration {
		return train.Plan{}, fmt.Errorf("read plan %d: generation %d after %d", m.Sequence, g, highest)
	}
	return decided.Plan, nil
}

// Fact is a plan as it is published.
func Fact(p train.Plan) event.Fact {
	return event.Fact{
		Subject: Subject(), Key: fmt.Sprintf("plan/%d", p.Generation), Time: p.DecidedAt, Source: publisher, Body: event.PlanDecided{Plan: p},
	}
}

// Fitting shortens a plan to what one message can hold: it drops the end of a long queue and, if the plan is still
// too large, all words. Which job holds what is never dropped: a plan that is too large even then is not published.
// Each waiting job finds its reasons in a fact of its own.
func Fitting(p train.Plan) train.Plan {
	p.Waiting = front(p.Waiting)
	if _, err := Fact(p).Encode(); !errors.Is(err, event.ErrTooLarge) {
		return p
	}
	p.Waiting, p.Memory = nil, "" // the policy learns again what it has learned
	p.Allocations = slices.Clone(p.Allocations)
	for i := range p.Allocations {
		p.Allocations[i].Reason = train.Reason{Code: p.Allocations[i].Reason.Code}
	}
	return p
}

// frontBytes bounds the part of a plan that says which jobs wait.
const frontBytes = 128 << 10

// front returns the first jobs of a queue, as many as have room in a plan.
func front(waiting []train.Waiting) []train.Waiting {
	bytes := 0
	for i, w := range waiting {
		one, err := json.Marshal(w)
		if bytes += len(one); bytes > frontBytes || err != nil {
			return waiting[:i]
		}
	}
	return waiting
}
