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
	job   train.JobID
	words string
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
		if l.published[id] == now {
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
		before, waits := l.cache.waits(w.Job)
		if !waits {
			continue
		}
		now := publication{job: w.Job, words: "queued " + reasons(w.Blockers)}
		if _, published := l.published[w.Job]; !published && "queued "+reasons(before) == now.words {
			l.published[w.Job] = now // by a planner before this one
		}
		add(now, event.FactQueued, event.Queued{
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
