package profiler

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// learner keeps the jobs that have not ended, and which of them have something new.
type learner struct {
	mu   sync.Mutex
	jobs map[train.JobID]*job
	// fresh have a new epoch, or were not written; sampled have heartbeats alone, which can wait.
	fresh   map[train.JobID]struct{}
	sampled map[train.JobID]struct{}
	wake    chan struct{}
	// present is set when the past has been read: from then on a job that ends is fitted once more before it is forgotten.
	present bool
	// taught are the step times of jobs that have ended, by signature.
	taught curve.Teachings
	// peaks is the memory that jobs have needed.
	peaks curve.Peaks
	// stays and meetings are how jobs get on with each other on a device.
	stays    *stays
	meetings *meetings
}

func newLearner() *learner {
	return &learner{
		jobs: map[train.JobID]*job{}, fresh: map[train.JobID]struct{}{}, sampled: map[train.JobID]struct{}{}, wake: make(chan struct{}, 1),
		stays: newStays(), meetings: newMeetings(),
	}
}

// followed are the facts of a job that teach something.
func followed() []string {
	return []string{
		event.FactAdmitted, event.FactTuned, event.FactStarted, event.FactEpochEnded, event.FactPreempted, event.FactAttemptLost, event.FactReestimated, event.FactStraggling,
		event.FactConverged, event.FactSucceeded, event.FactFailed, event.FactCancelled, event.FactRejected,
	}
}

// subjects are the followed facts of all jobs.
func subjects() []event.Subject {
	var all []event.Subject
	for _, fact := range followed() {
		all = append(all, event.Subject{Entity: "job", ID: "*", Fact: fact, Version: 1})
	}
	return all
}

// fact enters one fact of a job.
func (l *learner) fact(m bus.Message) error {
	kind, known := event.Find(m.Parsed)
	if m.ParseErr != nil || !known {
		return fmt.Errorf("read %s: no fact that is known here", m.Subject)
	}
	if m.Source != kind.Publisher {
		return fmt.Errorf("read %s: comes from %.80q, not from %s", m.Subject, m.Source, kind.Publisher)
	}
	body, err := event.DecodeBody(kind, m.Data)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := train.JobID(m.Parsed.ID)
	j := l.jobs[id]
	if j == nil {
		if b, ok := body.(*event.Admitted); ok {
			l.admit(newJob(id, b.Spec))
		}
		return nil // of a job that has ended, or was never admitted
	}
	l.meet(j, m, body)
	switch b := body.(type) {
	case *event.Tuned:
		j.tuned(b)
	case *event.Started:
		j.started(m.Time, b)
	case *event.Preempted:
		j.left(m.Time, b.Attempt)
	case *event.AttemptLost:
		j.left(m.Time, b.Attempt)
	case *event.Reestimated:
		j.told = b
	case *event.Straggling:
		j.straggled(b.Straggler)
	case *event.Converged:
		j.converged = true
	case *event.EpochEnded:
		if j.epochEnded(m.Time, b) {
			l.measure(j, m, b)
			l.remember(j)
			l.fresh[id] = struct{}{}
			l.stir()
		}
	case *event.Succeeded, *event.Failed, *event.Cancelled, *event.Rejected:
		j.ended = true
		l.taught.Add(j.spec.Signature(), j.history)
		if _, news := l.fresh[id]; !news || !l.present {
			l.forget(id)
		}
	}
	return nil
}

// admit begins with a job. What jobs of its signature taught is a model already, and so is what memory those of its family need.
func (l *learner) admit(j *job) {
	l.jobs[j.id] = j
	j.lent, j.peaks = l.taught.Of(j.spec.Signature()), l.peaks.Of(curve.KindOf(j.spec).Family)
	if len(j.lent)+len(j.peaks) > 0 {
		l.fresh[j.id] = struct{}{}
		l.stir()
	}
}

// remember keeps what memory a job has needed, for those of its family.
func (l *learner) remember(j *job) {
	family := curve.KindOf(j.spec).Family
	for _, peak := range j.history.Memory {
		l.peaks.Add(family, peak)
	}
	j.peaks = l.peaks.Of(family)
}

// sample enters a heartbeat.
func (l *learner) sample(m bus.Message) error {
	b, err := event.Decode[event.Stepped](m.Data)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.jobs[train.JobID(m.Parsed.ID)]; j != nil && j.stepped(b) {
		l.sampled[j.id] = struct{}{}
	}
	return nil
}

// stir wakes the writer.
func (l *learner) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *learner) forget(id train.JobID) {
	delete(l.jobs, id)
	delete(l.fresh, id)
	delete(l.sampled, id)
}

// arrive says that the past has been read.
func (l *learner) arrive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.present = true
	l.stir()
}

// again notes a job whose lesson could not be stored; the next round takes it up.
func (l *learner) again(id train.JobID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jobs[id] != nil {
		l.fresh[id] = struct{}{}
	}
}

// due empties the set of jobs with news; heartbeats count only where the round includes them.
func (l *learner) due(withSamples bool) []train.JobID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := maps.Clone(l.fresh)
	clear(l.fresh)
	if withSamples {
		maps.Copy(ids, l.sampled)
		clear(l.sampled)
	}
	return slices.Sorted(maps.Keys(ids))
}

// lesson is what is to be stored of a job: its model, and what of it is news.
type lesson struct {
	model      train.Model
	estimate   *event.Reestimated
	straggling *event.Straggling
	converged  *event.Converged
}

// lesson refits a job, for the last time where it has ended; false where it is forgotten.
func (l *learner) lesson(id train.JobID) (lesson, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[id]
	if j == nil {
		return lesson{}, false
	}
	if j.ended {
		l.forget(id)
		return lesson{model: j.model()}, true
	}
	// A straggler is in the model only once the fact of it is stored: a restart must find the same.
	out := lesson{model: j.model(), straggling: j.straggling(), converged: j.stop()}
	if r, known := j.estimate(out.model); known && j.news(r) {
		out.estimate = &r
	}
	return out, true
}

// told notes what was published of a job.
func (l *learner) told(id train.JobID, note func(*job)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.jobs[id]; j != nil {
		note(j)
	}
}

func (l *learner) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.jobs)
}
