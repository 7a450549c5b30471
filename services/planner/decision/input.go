package decision

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// InputVersion is the version of the format of Input. A reader refuses a newer one: it would decide on less than
// the planner did.
const InputVersion = 4

// Input is everything that a published plan follows from: plan.Decide makes the same plan of it again.
type Input struct {
	Version    int    `json:"version"`
	Generation uint64 `json:"generation"`
	// DecidedAt and the generation are the planner's: they are no part of the decision.
	DecidedAt time.Time `json:"decided_at"`
	Policy    string    `json:"policy"`
	// Decider is plan.Version of the code that decided; empty in inputs that were recorded before there was one.
	Decider string `json:"decider,omitempty"`
	// PlanSequence is the place of the plan in the stream PLANS.
	PlanSequence uint64     `json:"plan_sequence"`
	State        plan.State `json:"state"`
}

// SameDecider reports whether the code of this program decided: then deciding again gives the same bytes.
func (in Input) SameDecider() bool { return in.Decider == plan.Version }

// Decide decides again on the input, by its own policy or another. Generation and time are those of the published
// plan.
func (in Input) Decide(p plan.Policy) train.Plan {
	decided := plan.Decide(in.State, p)
	decided.Generation, decided.DecidedAt = in.Generation, in.DecidedAt
	return decided
}

// EncodePlan gives a plan as it is published: shortened until it fits into one message.
func EncodePlan(p train.Plan) ([]byte, error) { return Fact(Fitting(p)).Encode() }

const (
	// partBytes is how much of an input goes into one message: with base64 a third more, and then the other keys.
	partBytes = 180 << 10
	// maxInputBytes bounds what a reader unpacks.
	maxInputBytes = 1 << 30
)

// Facts are the input as it is stored.
func (in Input) Facts() ([]event.Fact, error) {
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("pack input %d: %w", in.Generation, err)
	}
	if err := errors.Join(json.NewEncoder(zip).Encode(in), zip.Close()); err != nil {
		return nil, fmt.Errorf("pack input %d: %w", in.Generation, err)
	}
	parts := (packed.Len() + partBytes - 1) / partBytes
	facts := make([]event.Fact, parts)
	for i := range facts {
		facts[i] = event.Fact{
			Subject: inputSubject(strconv.FormatUint(in.Generation, 10)), Key: fmt.Sprintf("plan/%d/input/%d", in.Generation, i+1), Time: in.DecidedAt,
			Cause: fmt.Sprintf("plan/%d", in.Generation),
			Body:  event.DecisionRecorded{Generation: in.Generation, Part: i + 1, Parts: parts, Data: packed.Next(partBytes)},
		}
	}
	return facts, nil
}

func inputSubject(generation string) event.Subject {
	return event.Subject{Entity: "decision", ID: generation, Fact: event.FactRecorded, Version: 1}
}

// Unpack puts the parts of one input together.
func Unpack(parts []event.DecisionRecorded) (Input, error) {
	var packed bytes.Buffer
	for i, p := range parts {
		if p.Part != i+1 || p.Parts != len(parts) {
			return Input{}, fmt.Errorf("unpack input %d: part %d of %d in place %d of %d", p.Generation, p.Part, p.Parts, i+1, len(parts))
		}
		packed.Write(p.Data)
	}
	unzip, err := gzip.NewReader(&packed)
	if err != nil {
		return Input{}, fmt.Errorf("unpack input: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(unzip, maxInputBytes))
	if err != nil {
		return Input{}, fmt.Errorf("unpack input: %w", err)
	}
	return ParseInput(data)
}

// ParseInput reads an input from its JSON.
func ParseInput(data []byte) (Input, error) {
	var in Input
	if err := json.Unmarshal(data, &in); err != nil {
		return Input{}, fmt.Errorf("parse input: %w", err)
	}
	if in.Version < 1 || in.Version > InputVersion {
		return Input{}, fmt.Errorf("parse input %d: it has format %d, this program reads 1 to %d", in.Generation, in.Version, InputVersion)
	}
	if in.Version < 4 {
		return in, in.readSilent(data)
	}
	return in, nil
}

// readSilent reads the nodes that did not report, as inputs named them before there were exclusions.
func (in *Input) readSilent(data []byte) error {
	var before struct {
		State struct {
			Silent []train.NodeID `json:"silent"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("parse input: %w", err)
	}
	for _, n := range before.State.Silent {
		in.State.Exclusions = append(in.State.Exclusions, train.Exclusion{Node: n, Reason: train.Reason{Code: train.NodeSilent, Message: fmt.Sprintf("node %s does not report", n)}})
	}
	return nil
}

// ReadInputs calls f with the recorded inputs since a time (zero: all that are kept), in the order of their
// decisions, or with the error of an input that cannot be read. It skips an input with missing parts.
func ReadInputs(ctx context.Context, b *bus.Bus, since time.Time, f func(Input, error)) error {
	return readInputs(ctx, b, inputSubject("*"), since, f)
}

// ReadInput reads the input of a generation, or the newest one for 0. It returns bus.ErrNotFound if none is kept.
func ReadInput(ctx context.Context, b *bus.Bus, generation uint64) (Input, error) {
	subject := inputSubject(strconv.FormatUint(generation, 10))
	if generation == 0 {
		newest, err := b.Last(ctx, event.StreamDecisions, inputSubject("*"))
		if err != nil {
			return Input{}, err
		}
		subject = newest.Parsed
	}
	var found []Input
	var broken error
	err := readInputs(ctx, b, subject, time.Time{}, func(in Input, err error) {
		if err == nil {
			found = append(found, in)
		}
		broken = errors.Join(broken, err)
	})
	if err = errors.Join(err, broken); err != nil {
		return Input{}, err
	}
	if len(found) == 0 {
		return Input{}, fmt.Errorf("read input %s: %w", subject.ID, bus.ErrNotFound)
	}
	return found[len(found)-1], nil
}

func readInputs(ctx context.Context, b *bus.Bus, subject event.Subject, since time.Time, f func(Input, error)) error {
	var parts []event.DecisionRecorded
	return b.Stored(ctx, event.StreamDecisions, []string{subject.String()}, since, func(m bus.Message) {
		part, err := event.Decode[event.DecisionRecorded](m.Data)
		if err != nil || m.Source != publisher {
			return // rubbish beside the records
		}
		// The parts of one input follow each other, but two planners may record at once.
		if part.Part == 1 {
			parts = nil
		}
		if len(parts) > 0 && parts[0].Generation != part.Generation {
			return
		}
		if parts = append(parts, part); part.Part != part.Parts || len(parts) != part.Parts {
			return
		}
		in, err := Unpack(parts)
		parts = nil
		f(in, err)
	})
}

// PublishedPlan reads the plan of an input from the stream PLANS, as it was published. It returns bus.ErrNotFound
// if the plan is no longer kept.
func PublishedPlan(ctx context.Context, b *bus.Bus, in Input) ([]byte, error) {
	m, err := b.At(ctx, event.StreamPlans, in.PlanSequence)
	if err != nil {
		return nil, err
	}
	published, err := ReadPlan(m, 0)
	if err != nil {
		return nil, err
	}
	if published.Generation != in.Generation {
		return nil, fmt.Errorf("read plan %d: at its place is generation %d", in.Generation, published.Generation)
	}
	return m.Data, nil
}
