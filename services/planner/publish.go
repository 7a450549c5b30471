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
	if err := l.bus.PublishTogether(ctx, facts...); err != nil {
		return err
	}
	for _, now := range sent {
		l.published[now.job] = now
	}
	if more {
		l.cache.wake()
	}
	return nil
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
		full := len(facts) == factsAtOnce
		more = more || full
		return !full
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
