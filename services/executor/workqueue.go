package executor

import (
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

const (
	// resyncInterval is how often all jobs are compared even without events, in case one was missed.
	resyncInterval = 5 * time.Minute
	// startsPerPass bounds how long a pass that starts many jobs takes, and with it how long events of others wait.
	startsPerPass = 64
)

// workqueue holds the jobs that the next pass has to look at: jobs with events and jobs for which something is due.
// The loop that takes a job from the queue looks at everything about it and enters what is due next, so a pass costs
// what has changed and not what there is.
type workqueue struct {
	wake tick.Signal

	mu    sync.Mutex
	dirty map[train.JobID]bool
	due   map[train.JobID]time.Time
	// soonest is not later than any time in due; it is zero if due is empty.
	soonest time.Time
	// deferred are jobs whose start was put off, in their order.
	deferred []train.JobID
	// resync is when all jobs are due.
	resync time.Time
}

func newWorkqueue() *workqueue {
	return &workqueue{wake: tick.NewSignal(), dirty: map[train.JobID]bool{}, due: map[train.JobID]time.Time{}}
}

// add queues jobs for the next pass.
func (q *workqueue) add(jobs ...train.JobID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range jobs {
		q.dirty[id] = true
	}
	q.wake.Send()
}

// addAll queues every job for the next pass.
func (q *workqueue) addAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.resync = time.Time{}
	q.wake.Send()
}

// addAt makes a job due at a time, if it is not due earlier.
func (q *workqueue) addAt(job train.JobID, t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before, known := q.due[job]; !known || t.Before(before) {
		q.due[job] = t
	}
	if q.soonest.IsZero() || t.Before(q.soonest) {
		q.soonest = t
	}
}

// postpone defers starts to the passes after this one.
func (q *workqueue) postpone(starts []diff.Action) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range starts {
		q.deferred = append(q.deferred, s.Job)
	}
	q.wake.Send()
}

// next returns when something is due by the clock, the zero time if nothing is.
func (q *workqueue) next() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.soonest
}

// take removes what is to be done now; all means every job.
func (q *workqueue) take(now time.Time) (jobs map[train.JobID]bool, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	jobs, q.dirty = q.dirty, map[train.JobID]bool{}
	if !now.Before(q.resync) {
		q.due, q.soonest, q.deferred = map[train.JobID]time.Time{}, time.Time{}, nil
		q.resync = now.Add(resyncInterval)
		return nil, true
	}
	n := min(len(q.deferred), startsPerPass)
	for _, id := range q.deferred[:n] {
		jobs[id] = true
	}
	q.deferred = q.deferred[n:]
	if !q.soonest.IsZero() && !now.Before(q.soonest) {
		q.takeDue(now, jobs)
	}
	for id := range jobs {
		delete(q.due, id)
	}
	return jobs, false
}

// takeDue adds the jobs that are due.
func (q *workqueue) takeDue(now time.Time, jobs map[train.JobID]bool) {
	q.soonest = time.Time{}
	for id, t := range q.due {
		if !now.Before(t) {
			jobs[id] = true
		} else if q.soonest.IsZero() || t.Before(q.soonest) {
			q.soonest = t
		}
	}
}
