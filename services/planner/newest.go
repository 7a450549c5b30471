package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// newest is the newest plan as this planner knows it.
type newest struct {
	last train.Plan
	// sequence is the place of the newest message on the subject, be it a plan or not: the next plan is appended after it.
	sequence uint64
	// known says whether there is a plan, loaded whether that was asked.
	known  bool
	loaded bool
	// spoiled says that the newest message is no plan of a planner. Whoever starts anew finds only that one, so the plan is to be published again.
	spoiled bool
}

const (
	// publisher is whose plans count.
	publisher = "planner"
	// farthestLeap bounds how far the generation of a plan may be ahead of the one before. Planners count by one; a number near the end of the range
	// would have every later plan refused. Executors have the same bound.
	farthestLeap = 1 << 40
	// lastGeneration is where counting ends.
	lastGeneration = 1 << 63
)

func planSubject() event.Subject {
	return event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}
}

// readPlan takes a plan from a message as executors do; highest is the generation of the newest one before it.
func readPlan(m bus.Message, highest uint64) (train.Plan, error) {
	if m.Source != "" && m.Source != publisher {
		return train.Plan{}, fmt.Errorf("read plan %d: it comes from %.80q", m.Sequence, m.Source)
	}
	decided, err := event.Decode[event.PlanDecided](m.Data)
	if err != nil {
		return train.Plan{}, fmt.Errorf("read plan %d: %w", m.Sequence, err)
	}
	if g := decided.Generation; g == 0 || g < highest || g-highest > farthestLeap || g > lastGeneration {
		return train.Plan{}, fmt.Errorf("read plan %d: generation %d after %d", m.Sequence, g, highest)
	}
	return decided.Plan, nil
}

// load reads the newest plan. What is on the subject beside plans, anybody's rubbish, is passed over.
func (l *loop) load(ctx context.Context) error {
	m, err := l.bus.Last(ctx, event.StreamPlans, planSubject())
	if errors.Is(err, bus.ErrNotFound) {
		l.newest = newest{last: train.Plan{Generation: l.last.Generation}, loaded: true}
		return nil
	}
	if err != nil {
		return err
	}
	// Where nothing is found the count goes on from what was decided, or acted on, before.
	found := newest{last: train.Plan{Generation: max(l.last.Generation, l.picture.generation())}, sequence: m.Sequence, loaded: true}
	// Nearly always the newest message is a plan; those before it say whether its generation can be.
	const few, more = 8, 64
	for back := uint64(few); ; back *= more {
		from := m.Sequence - min(back, m.Sequence) + 1
		if err := l.review(ctx, from, &found); err != nil {
			return err
		}
		if found.known || from == 1 {
			break
		}
	}
	l.newest = found
	if found.known {
		l.meters.published(found.last)
	}
	return nil
}

// reviewTimeout bounds the reading of old plans.
const reviewTimeout = 30 * time.Second

// review reads the messages from a sequence on up to the newest one and finds the newest plan among them.
func (l *loop) review(ctx context.Context, from uint64, found *newest) error {
	reading, done := context.WithTimeout(ctx, reviewTimeout)
	defer done()
	complete := false
	err := l.bus.Follow(reading, event.StreamPlans, []string{planSubject().String()}, from, func(m bus.Message) {
		if complete {
			return
		}
		p, err := readPlan(m, found.last.Generation)
		newest := m.Sequence >= found.sequence
		switch found.spoiled = err != nil; {
		case err == nil:
			found.last, found.known = p, true
		case newest:
			// Those before it are no news, and after a restart rightly older than what was acted on.
			l.log.Warn("message is no plan", "sequence", m.Sequence, "error", err)
		}
		if newest {
			complete, found.sequence = true, m.Sequence
			done()
		}
	})
	if complete {
		return nil
	}
	return fmt.Errorf("read the newest plans: %w", errors.Join(err, reading.Err()))
}

// followPlans notes what others publish: rubbish there is answered with a plan.
func (l *loop) followPlans(ctx context.Context) error {
	return l.bus.Follow(ctx, event.StreamPlans, []string{planSubject().String()}, 0, func(m bus.Message) {
		l.arrived.Store(m.Sequence)
		if _, err := readPlan(m, 0); err != nil {
			l.picture.nudge()
		}
	})
}
