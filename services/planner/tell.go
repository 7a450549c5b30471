package planner

import (
	"context"
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// tellAtOnce bounds how many facts one round publishes, so that a long line does not hold up the next decision.
	tellAtOnce = 500
	// tellWords is how far down the line a change of words, not only of codes, is told.
	tellWords = 50
)

// tell publishes what is new to each job: what it is given as soon as that is decided, what it waits for once it has left.
func (l *loop) tell(ctx context.Context) error {
	facts, said, more := l.news()
	for i, f := range facts {
		if err := l.bus.Publish(ctx, f); err != nil {
			return err
		}
		l.told[said[i].job] = said[i].words
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
}

// news are the facts of the newest plan that were not told yet, at most tellAtOnce; more says that there are others.
func (l *loop) news() (facts []event.Fact, said []saying, more bool) {
	if !l.known {
		return nil, nil, false
	}
	listed := make(map[train.JobID]bool, len(l.last.Allocations)+len(l.last.Waiting))
	add := func(id train.JobID, words, fact string, body any) {
		listed[id] = true
		if l.told[id] == words {
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
		said = append(said, saying{id, words})
	}
	for _, a := range l.last.Allocations {
		if !l.picture.knows(a.Job) {
			continue
		}
		add(a.Job, fmt.Sprintf("planned %s %s", a.Node, train.JoinDevices(a.Devices)), event.FactPlanned, event.Planned{
			Generation: l.last.Generation, Node: a.Node, Devices: a.Devices, Reason: a.Reason, RemainingSeconds: a.RemainingSeconds,
		})
	}
	for i, w := range l.last.Waiting {
		listed[w.Job] = true
		if !l.picture.waits(w.Job) {
			continue
		}
		words := "queued " + codes(w.Blockers)
		if i < tellWords {
			words += " " + messages(w.Blockers)
		}
		add(w.Job, words, event.FactQueued, event.Queued{
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

func messages(reasons []train.Reason) string {
	words := make([]string, len(reasons))
	for i, r := range reasons {
		words[i] = r.Message
	}
	return strings.Join(words, "; ")
}
