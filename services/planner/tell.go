package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// tellAtOnce bounds how many facts one round publishes, so that a long line does not hold up the next decision.
const tellAtOnce = 500

// tell publishes what is new to each job: what it is given as soon as that is decided, what it waits for once it has left.
func (l *loop) tell(ctx context.Context) error {
	facts, said, more := l.news()
	for i, f := range facts {
		if err := l.bus.Publish(ctx, f); err != nil {
			return err
		}
		l.told[said[i].job] = said[i]
	}
	if more {
		l.picture.nudge()
	}
	return nil
}

// saying is what a fact says of a job, in short.
type saying struct {
	job   train.JobID
	words string
	// position in the queue, 0 for a job that has devices.
	position int
}

// closePosition is from where on each step in the queue is worth a fact.
const closePosition = 3

// repeats says whether a fact that says s is not worth telling after the one that said before: other words for the same reasons, or a step
// far down the queue. A long queue would else be told to each of its jobs with every plan.
func (s saying) repeats(before saying) bool {
	if s.words != before.words {
		return false
	}
	moved := s.position != before.position
	far := s.position > closePosition && 2*s.position > before.position && s.position < 2*before.position
	return !moved || far
}

// news are the facts of the newest plan that were not told yet, at most tellAtOnce; more says that there are others.
func (l *loop) news() (facts []event.Fact, said []saying, more bool) {
	if !l.known {
		return nil, nil, false
	}
	listed := make(map[train.JobID]bool, len(l.last.Allocations)+len(l.last.Waiting))
	add := func(now saying, fact string, body any) {
		id := now.job
		listed[id] = true
		if before, told := l.told[id]; told && now.repeats(before) {
			return
		}
		if len(facts) == tellAtOnce {
			more = true
			return
		}
		facts = append(facts, event.Fact{
			Subject: event.JobSubject(id, fact), Key: fmt.Sprintf("plan/%d/job/%s/%s", l.last.Generation, id, fact),
			Cause: fmt.Sprintf("plan/%d", l.last.Generation), Body: body,
		})
		said = append(said, now)
	}
	for _, a := range l.last.Allocations {
		if !l.picture.knows(a.Job) {
			continue
		}
		now := saying{job: a.Job, words: fmt.Sprintf("planned %s %s", a.Node, train.JoinPlaces(a.Places()))}
		add(now, event.FactPlanned, event.Planned{
			Generation: l.last.Generation, Node: a.Places()[0].Node, Devices: train.AllDevices(a.Places()), Reason: a.Reason, RemainingSeconds: a.RemainingSeconds,
			PowerWatts: l.picture.powerOf(a.Places()),
		})
	}
	for i, w := range l.last.Waiting {
		listed[w.Job] = true
		if !l.picture.waits(w.Job) {
			continue
		}
		add(saying{job: w.Job, words: "queued " + reasons(w.Blockers), position: i + 1}, event.FactQueued, event.Queued{
			Generation: l.last.Generation, Blockers: w.Blockers, Position: i + 1, StartInSeconds: w.StartInSeconds,
		})
	}
	for id := range l.told {
		if !listed[id] {
			delete(l.told, id)
		}
	}
	return facts, said, more
}

func codes(reasons []train.Reason) string {
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = r.Code
	}
	return strings.Join(words, " ")
}

// reasons are the dominant code and the set of all.
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
