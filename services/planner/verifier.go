package planner

import (
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// verifier compares what plans predicted with what happened: the first prediction of the start of a job that waits,
// and the first one of its end once it has its devices.
type verifier struct {
	mu     sync.Mutex
	first  map[train.JobID]predictions
	meters *meters
}

// predictions are the first predictions about a job; said is when its start was predicted.
type predictions struct {
	start, finish *train.Moment
	said          time.Time
}

func newVerifier(m *meters) *verifier {
	return &verifier{first: map[train.JobID]predictions{}, meters: m}
}

// predicted takes in a published plan.
func (f *verifier) predicted(p train.Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := p.Predictions()
	for _, w := range p.Waiting {
		first := f.first[w.Job]
		if first.start == nil {
			first.start, first.said = all[w.Job].Start, p.DecidedAt
		}
		f.first[w.Job] = first
	}
	for _, a := range p.Allocations {
		first := f.first[a.Job]
		if first.finish == nil {
			first.finish = all[a.Job].Finish
		}
		f.first[a.Job] = first
	}
}

// observeJob takes in the record of a job. Of ends, only successes count: no plan predicts the others.
func (f *verifier) observeJob(e bus.Entry[*train.Job], deleted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job, id := e.Value, train.JobID(e.Key)
	first, known := f.first[id]
	if !known {
		return
	}
	if first.start != nil && !job.StartedAt.IsZero() {
		if job.StartedAt.After(first.said) { // it was not its second start that was predicted
			f.meters.happened("start", *first.start, job.StartedAt)
		}
		first.start = nil
	}
	f.first[id] = first
	if job.State == train.StateSucceeded && first.finish != nil {
		f.meters.happened("finish", *first.finish, job.FinishedAt)
	}
	if deleted || job.State.Terminal() {
		delete(f.first, id)
	}
}

// when says on which side of its interval a predicted moment came.
func when(m train.Moment, at time.Time) string {
	switch {
	case at.Before(m.Low):
		return "before"
	case at.After(m.High):
		return "after"
	}
	return "inside"
}
