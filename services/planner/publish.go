package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/decision"
)

// factsAtOnce is how many facts are published before the planner looks whether there is something to decide, so that a
// long queue does not delay decisions.
const factsAtOnce = 500

// crowd is the largest growth of the queue from one plan to the next after which the reasons of new jobs are published
// at once. After a larger one they come later: a reason costs the register as many writes as an admission, and more
// admissions are likely to follow.
const crowd = 50

// publishNews publishes what is new for each job: its allocation as soon as it is decided, its reasons to wait once it
// has left its devices. It leaves the rest to the next round when there is something to decide, or may soon be.
func (l *loop) publishNews(ctx context.Context) error {
	for {
		facts, sent, more := l.news()
		if err := l.bus.PublishTogether(ctx, facts...); err != nil {
			return err
		}
		for _, now := range sent {
			l.published[now.job] = now
		}
		if !more {
			return nil
		}
		if l.crowded || l.cache.stale() {
			l.cache.wake()
			return nil
		}
	}
}

// publication is the content of a fact about a job, in short: a job whose reasons have only got other words, or another
// place in the queue, is worth none. The newest plan has these.
type publication struct {
	job         train.JobID
	fact, words string
}

// news returns the facts of the newest plan that were not published yet, at most factsAtOnce. more reports whether
// others are left.
func (l *loop) news() (facts []event.Fact, sent []publication, more bool) {
	if !l.known {
		return nil, nil, false
	}
	listed := make(map[train.JobID]bool, len(l.last.Allocations)+len(l.last.Waiting))
	// fresh reports whether a fact is to be published now.
	fresh := func(now publication) bool {
		listed[now.job] = true
		if l.published[now.job] == now {
			return false
		}
		later := len(facts) == factsAtOnce || l.defers(now)
		more = more || later
		return !later
	}
	add := func(now publication, body any) {
		facts = append(facts, event.Fact{
			Subject: event.JobSubject(now.job, now.fact), Key: fmt.Sprintf("plan/%d/job/%s/%s", l.last.Generation, now.job, now.fact),
			Cause: fmt.Sprintf("plan/%d", l.last.Generation), Body: body,
		})
		sent = append(sent, now)
	}
	for _, a := range l.last.Allocations {
		now := publication{a.Job, event.FactPlanned, fmt.Sprintf("%s %s", a.Node, train.JoinPlaces(a.Places()))}
		if l.cache.knows(a.Job) && fresh(now) {
			add(now, l.planned(a))
		}
	}
	for i, w := range l.last.Waiting {
		listed[w.Job] = true
		before, waits := l.cache.waits(w.Job)
		if !waits {
			continue
		}
		now := publication{w.Job, event.FactQueued, reasons(w.Blockers)}
		if _, published := l.published[w.Job]; !published && reasons(before) == now.words {
			l.published[w.Job] = now // by a planner before this one
		}
		if fresh(now) {
			add(now, event.Queued{Generation: l.last.Generation, Blockers: w.Blockers, Position: i + 1, StartInSeconds: w.StartInSeconds})
		}
	}
	for id := range l.published {
		if !listed[id] {
			delete(l.published, id)
		}
	}
	return facts, sent, more
}

// defers reports whether a fact waits for the end of a crowd: the first reasons of a new job do.
func (l *loop) defers(now publication) bool {
	_, published := l.published[now.job]
	return l.crowded && !published && now.fact == event.FactQueued
}

// planned is the fact about an allocation of the newest plan.
func (l *loop) planned(a train.Allocation) event.Planned {
	body := event.Planned{
		Generation: l.last.Generation, Node: a.Places()[0].Node, Devices: train.AllDevices(a.Places()), Parts: a.Parts, Reason: a.Reason, RemainingSeconds: a.RemainingSeconds,
		PowerWatts: l.cache.powerOf(a.Places()),
	}
	if finish := a.Forecast.Finish; finish != nil {
		body.RemainingLowSeconds, body.RemainingHighSeconds = finish.Low, finish.High
	}
	return body
}

// reasons returns the dominant code and the set of all codes.
func reasons(blockers []train.Reason) string {
	switch len(blockers) {
	case 0:
		return ""
	case 1:
		return blockers[0].Code // nearly all of a long queue, so nothing is built for these
	}
	set := make([]string, len(blockers))
	for i, r := range blockers {
		set[i] = r.Code
	}
	slices.Sort(set)
	if set = slices.Compact(set); len(set) == 1 {
		return set[0]
	}
	return blockers[0].Code + ": " + strings.Join(set, " ")
}

// newest is the newest plan as this planner knows it.
type newest struct {
	last train.Plan
	// sequence is the place of the newest message on the subject, be it a plan or not: the next plan is appended
	// after it.
	sequence uint64
	// known says whether there is a plan, loaded whether that was asked.
	known  bool
	loaded bool
	// crowded is set if the number of waiting jobs has grown by more than crowd since the plan before.
	crowded bool
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

// followPlans notes what others publish. After a message that is no plan it wakes the loop, which publishes the plan
// again.
func (l *loop) followPlans(ctx context.Context) error {
	return l.bus.Follow(ctx, event.StreamPlans, []string{decision.Subject().String()}, 0, func(m bus.Message) {
		l.arrived.Store(m.Sequence)
		if _, err := decision.ReadPlan(m, 0); err != nil {
			l.cache.wake()
		}
	})
}

const (
	// correctEvery is the least time between plans that differ in predictions alone.
	correctEvery = 5 * time.Second
	// worthCorrecting is the part of the time to go by which a prediction must be off, and correctSeconds the least.
	worthCorrecting = 0.25
	correctSeconds  = 5
)

// corrects reports whether the predictions of a plan differ so much from those of one with the same allocations that
// users should see them.
func corrects(before, now train.Plan) bool {
	if now.DecidedAt.Sub(before.DecidedAt) < correctEvery {
		return false
	}
	passed := now.DecidedAt.Sub(before.DecidedAt).Seconds()
	for i, a := range now.Allocations {
		if i < len(before.Allocations) && off(before.Allocations[i].Forecast.Finish, a.Forecast.Finish, passed) {
			return true
		}
	}
	for i, w := range now.Waiting {
		if i < len(before.Waiting) && off(before.Waiting[i].Forecast.Start, w.Forecast.Start, passed) {
			return true
		}
	}
	return false
}

// off reports whether a prediction made some seconds ago is far from a new one, or there was none.
func off(before, now *train.Span, passed float64) bool {
	if before == nil || now == nil {
		return before == nil && now != nil
	}
	shift := before.Expected - passed - now.Expected
	return max(shift, -shift) > max(worthCorrecting*now.Expected, correctSeconds)
}
