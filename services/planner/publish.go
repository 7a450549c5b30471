package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// factsAtOnce bounds the facts that one round publishes, so that a long queue does not delay the next decision.
const factsAtOnce = 500

// publishNews publishes what is new for each job: its allocation as soon as it is decided, its reasons to wait once it
// has left its devices.
func (l *loop) publishNews(ctx context.Context) error {
	facts, sent, more := l.news()
	for i, f := range facts {
		if err := l.bus.Publish(ctx, f); err != nil {
			return err
		}
		l.published[sent[i].job] = sent[i]
	}
	if more {
		l.cache.wake()
	}
	return nil
}

// publication is the content of a fact about a job, in short.
type publication struct {
	job   train.JobID
	words string
	// position in the queue, 0 for a job that has devices.
	position int
}

// closePosition is the place in the queue from which on each step is worth a fact.
const closePosition = 3

// repeats reports whether a fact is not worth publishing after the one before: other words for the same reasons, or
// a step far down the queue. Otherwise each plan would publish a fact for each job of a long queue.
func (s publication) repeats(before publication) bool {
	if s.words != before.words {
		return false
	}
	moved := s.position != before.position
	far := s.position > closePosition && 2*s.position > before.position && s.position < 2*before.position
	return !moved || far
}

// news returns the facts of the newest plan that were not published yet, at most factsAtOnce. more reports whether
// others are left.
func (l *loop) news() (facts []event.Fact, sent []publication, more bool) {
	if !l.known {
		return nil, nil, false
	}
	listed := make(map[train.JobID]bool, len(l.last.Allocations)+len(l.last.Waiting))
	add := func(now publication, fact string, body any) {
		id := now.job
		listed[id] = true
		if before, told := l.published[id]; told && now.repeats(before) {
			return
		}
		if len(facts) == factsAtOnce {
			more = true
			return
		}
		facts = append(facts, event.Fact{
			Subject: event.JobSubject(id, fact), Key: fmt.Sprintf("plan/%d/job/%s/%s", l.last.Generation, id, fact),
			Cause: fmt.Sprintf("plan/%d", l.last.Generation), Body: body,
		})
		sent = append(sent, now)
	}
	for _, a := range l.last.Allocations {
		if !l.cache.knows(a.Job) {
			continue
		}
		now := publication{job: a.Job, words: fmt.Sprintf("planned %s %s", a.Node, train.JoinPlaces(a.Places()))}
		body := event.Planned{
			Generation: l.last.Generation, Node: a.Places()[0].Node, Devices: train.AllDevices(a.Places()), Reason: a.Reason, RemainingSeconds: a.RemainingSeconds,
			PowerWatts: l.cache.powerOf(a.Places()),
		}
		if finish := a.Forecast.Finish; finish != nil {
			body.RemainingLowSeconds, body.RemainingHighSeconds = finish.Low, finish.High
		}
		add(now, event.FactPlanned, body)
	}
	for i, w := range l.last.Waiting {
		listed[w.Job] = true
		if !l.cache.waits(w.Job) {
			continue
		}
		add(publication{job: w.Job, words: "queued " + reasons(w.Blockers), position: i + 1}, event.FactQueued, event.Queued{
			Generation: l.last.Generation, Blockers: w.Blockers, Position: i + 1, StartInSeconds: w.StartInSeconds,
		})
	}
	for id := range l.published {
		if !listed[id] {
			delete(l.published, id)
		}
	}
	return facts, sent, more
}

func codes(reasons []train.Reason) string {
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = r.Code
	}
	return strings.Join(words, " ")
}

// reasons returns the dominant code and the set of all codes.
func reasons(blockers []train.Reason) string {
	if len(blockers) == 0 {
		return ""
	}
	set := make([]string, len(blockers))
	for i, r := range blockers {
		set[i] = r.Code
	}
	slices.Sort(set)
	return blockers[0].Code + ": " + strings.Join(slices.Compact(set), " ")
}
