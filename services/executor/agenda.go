package executor

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// resyncInterval is how often all jobs are compared whether there was news of them or not, in case some was missed.
	resyncInterval = 5 * time.Minute
	// startsInOnePass bounds how long a pass takes that starts many jobs, and with it how long news of others waits.
	startsInOnePass = 64
)

// agenda is what a pass is about: the jobs of which there was news and those of which something is due. Whoever takes a job off it looks at everything about that
// job and enters what is due next, so a pass costs what has changed and not what there is.
type agenda struct {
	touched map[train.JobID]bool
	due     map[train.JobID]time.Time
	// soonest is no later than any time in due; zero where there is none.
	soonest time.Time
	// later are jobs whose start was put off, in their order.
	later []train.JobID
	// resync is when all jobs are due.
	resync time.Time
}

func newAgenda() agenda {
	return agenda{touched: map[train.JobID]bool{}, due: map[train.JobID]time.Time{}}
}

// at enters that a job is due at a time, if not earlier.
func (a *agenda) at(job train.JobID, t time.Time) {
	if before, known := a.due[job]; !known || t.Before(before) {
		a.due[job] = t
	}
	if a.soonest.IsZero() || t.Before(a.soonest) {
		a.soonest = t
	}
}

// take takes off what there is to do now; all says that it is everything.
func (a *agenda) take(now time.Time) (jobs map[train.JobID]bool, all bool) {
	if !now.Before(a.resync) {
		*a = newAgenda()
		a.resync = now.Add(resyncInterval)
		return nil, true
	}
	jobs, a.touched = a.touched, map[train.JobID]bool{}
	n := min(len(a.later), startsInOnePass)
	for _, id := range a.later[:n] {
		jobs[id] = true
	}
	a.later = a.later[n:]
	if !a.soonest.IsZero() && !now.Before(a.soonest) {
		a.ring(now, jobs)
	}
	for id := range jobs {
		delete(a.due, id)
	}
	return jobs, false
}

// ring adds the jobs that are due.
func (a *agenda) ring(now time.Time, jobs map[train.JobID]bool) {
	a.soonest = time.Time{}
	for id, t := range a.due {
		if !now.Before(t) {
			jobs[id] = true
		} else if a.soonest.IsZero() || t.Before(a.soonest) {
			a.soonest = t
		}
	}
}
