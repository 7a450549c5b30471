package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
)

// newest is the newest plan as this planner knows it.
type newest struct {
	last train.Plan
	// sequence is the place of the newest message on the subject, be it a plan or not: the next plan is appended
	// after it.
	sequence uint64
	// known says whether there is a plan, loaded whether that was asked.
	known  bool
	loaded bool
	// spoiled says that the newest message is no plan of a planner. A program that starts finds only that one, so
	// the plan must be published again.
	spoiled bool
}

// load reads the newest plan. It skips other messages on the subject, which any publisher may have put there.
func (l *loop) load(ctx context.Context) error {
	m, err := l.bus.Last(ctx, event.StreamPlans, decision.Subject())
	if errors.Is(err, bus.ErrNotFound) {
		l.newest = newest{last: train.Plan{Generation: l.last.Generation}, loaded: true}
		return nil
	}
	if err != nil {
		return err
	}
	// If no plan is found the count continues from what was decided, or acted on, before.
	found := newest{last: train.Plan{Generation: max(l.last.Generation, l.cache.generation())}, sequence: m.Sequence, loaded: true}
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
	err := l.bus.Follow(reading, event.StreamPlans, []string{decision.Subject().String()}, from, func(m bus.Message) {
		if complete {
			return
		}
		p, err := decision.ReadPlan(m, found.last.Generation)
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

// followPlans notes what others publish. A message that is no plan is answered with a plan.
func (l *loop) followPlans(ctx context.Context) error {
	return l.bus.Follow(ctx, event.StreamPlans, []string{decision.Subject().String()}, 0, func(m bus.Message) {
		l.arrived.Store(m.Sequence)
		if _, err := decision.ReadPlan(m, 0); err != nil {
			l.cache.wake()
		}
	})
}
