package profiler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unique"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// estimator keeps the jobs that have not ended, and which of them have changed.
type estimator struct {
	mu   sync.Mutex
	jobs map[train.JobID]*learn.Job
	// queued are jobs of which nothing is known but that they were admitted.
	queued map[train.JobID]queued
	// fresh are the jobs with a new epoch or an unwritten model. sampled are the jobs with only new heartbeats, which
	// can wait.
	fresh   map[train.JobID]struct{}
	sampled map[train.JobID]struct{}
	// wake wakes the writer.
	wake tick.Signal
	// present is set when the past has been read: from then on a job that ends is fitted once more before it is
	// forgotten.
	present bool
	// stopped are the newest jobs that failed or were cancelled: they may be resumed.
	stopped []train.JobID
	// library is what jobs teach those of their family.
	library learn.Library
	// peaks is the memory that jobs have needed.
	peaks curve.Peaks
	// residency and interference record how jobs slow each other down on a device.
	residency    *residency
	interference *interference
}

func newEstimator() *estimator {
	return &estimator{
		jobs: map[train.JobID]*learn.Job{}, queued: map[train.JobID]queued{}, fresh: map[train.JobID]struct{}{}, sampled: map[train.JobID]struct{}{}, wake: tick.NewSignal(),
		residency: newResidency(), interference: newInterference(),
	}
}

// followed returns the facts of all jobs that the estimator uses.
func followed() []event.Subject {
	var all []event.Subject
	for _, fact := range []string{
		event.FactAdmitted, event.FactTuned, event.FactStarted, event.FactEpochEnded, event.FactPreempted, event.FactAttemptLost, event.FactReestimated, event.FactStraggling,
		event.FactConverged, event.FactSucceeded, event.FactFailed, event.FactCancelled, event.FactRejected,
	} {
		all = append(all, event.Subject{Entity: "job", ID: "*", Fact: fact, Version: 1})
	}
	return all
}

// fact applies one fact of a job.
func (e *estimator) fact(m bus.Message) error {
	body, err := decode(m)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id := train.JobID(m.Parsed.ID)
	j := e.unqueue(id)
	if j == nil {
		if b, ok := body.(*event.Admitted); ok && b.Spec.Array == "" {
			e.admit(id, b.Spec)
		}
		return nil // of a job that has ended, or was never admitted
	}
	e.trackDevices(j, m, body)
	switch b := body.(type) {
	case *event.EpochEnded:
		e.epochEnded(j, m, b)
	case *event.Succeeded:
		j.Take(m.Time, b)
		e.teach(j, e.library.Succeeded(j))
		e.jobEnded(j)
	case *event.Rejected:
		e.jobEnded(j)
	case *event.Failed, *event.Cancelled:
		e.jobStopped(j)
	case *event.Started:
		j.Ended = false // it may have been resumed
		j.Take(m.Time, b)
		e.library.Lend(j) // its devices are known now
	default:
		j.Take(m.Time, body)
	}
	return nil
}

// decode returns the body of a fact if it comes from the service that publishes such facts.
func decode(m bus.Message) (any, error) {
	kind, known := event.Find(m.Parsed)
	if m.ParseErr != nil || !known {
		return nil, fmt.Errorf("read %s: unknown fact", m.Subject)
	}
	if m.Source != kind.Publisher {
		return nil, fmt.Errorf("read %s: comes from %.80q, not from %s", m.Subject, m.Source, kind.Publisher)
	}
	return event.DecodeBody(kind, m.Data)
}

// epochEnded updates the estimates of a job, its family and its co-runners.
func (e *estimator) epochEnded(j *learn.Job, m bus.Message, b *event.EpochEnded) {
	if j.Take(m.Time, b) {
		e.measure(j, m, b)
		e.remember(j)
		e.teach(j, e.library.Learn(j))
		e.library.Lend(j)
		e.fresh[j.ID] = struct{}{}
		e.wake.Send()
	}
}

// teach lends the others of a job's family what it has taught, also those that wait.
func (e *estimator) teach(teacher *learn.Job, taught bool) {
	if !taught {
		return
	}
	family := teacher.Family()
	for id, j := range e.jobs {
		if j != teacher && !j.Ended && j.Family() == family && e.library.Lend(j) {
			e.fresh[id] = struct{}{}
		}
	}
	for id, q := range e.queued {
		if q.family == unique.Make(family) {
			e.fresh[id] = struct{}{}
		}
	}
	e.wake.Send()
}

// jobEnded forgets a job once its last model is written.
func (e *estimator) jobEnded(j *learn.Job) {
	j.Ended = true
	if _, unwritten := e.fresh[j.ID]; !unwritten || !e.present {
		e.forget(j.ID)
	}
}

// mostStopped bounds how many jobs that failed or were cancelled are kept.
const mostStopped = 200

// jobStopped keeps a job that may be resumed, until many others have ended likewise.
func (e *estimator) jobStopped(j *learn.Job) {
	j.Ended = true
	if !e.present {
		delete(e.fresh, j.ID) // its model was written at its end
	}
	if e.stopped = append(e.stopped, j.ID); len(e.stopped) <= mostStopped {
		return
	}
	if oldest := e.jobs[e.stopped[0]]; oldest != nil && oldest.Ended {
		e.forget(oldest.ID)
	}
	e.stopped = e.stopped[1:]
}

// beginning returns the model with which a job would begin.
func (e *estimator) beginning(_ context.Context, spec train.Spec) (train.Model, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.begin("", spec, e.peaks.Of(curve.KindOf(spec).Family)).Model(), nil
}

// remember keeps how much memory a job needed, for jobs of its family.
func (e *estimator) remember(j *learn.Job) {
	family := curve.KindOf(j.Spec).Family
	for _, peak := range j.History.Memory {
		e.peaks.Add(family, peak)
	}
	j.Peaks = e.peaks.Of(family)
}

func (e *estimator) sample(m bus.Message) error {
	b, err := event.Decode[event.Stepped](m.Data)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if j := e.jobs[train.JobID(m.Parsed.ID)]; j != nil && j.Stepped(m.Time, b) {
		e.sampled[j.ID] = struct{}{}
		e.teach(j, e.library.Learn(j))
	}
	return nil
}

func (e *estimator) forget(id train.JobID) {
	delete(e.jobs, id)
	delete(e.fresh, id)
	delete(e.sampled, id)
}

// caughtUp records that the past has been read.
func (e *estimator) caughtUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.present = true
	e.wake.Send()
}

// requeue marks a job whose update could not be stored; the next round retries it.
func (e *estimator) requeue(id train.JobID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, queued := e.queued[id]; queued || e.jobs[id] != nil {
		e.fresh[id] = struct{}{}
	}
}

// due empties the set of changed jobs. Heartbeats count only if the round includes them.
func (e *estimator) due(withSamples bool) []train.JobID {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := maps.Clone(e.fresh)
	clear(e.fresh)
	if withSamples {
		maps.Copy(ids, e.sampled)
		clear(e.sampled)
	}
	return slices.Sorted(maps.Keys(ids))
}

// update is what has to be stored for a job: its model, and the facts to publish. since is the attempt that began its
// training again; 0 if none did.
type update struct {
	since      int
	model      train.Model
	estimate   *event.Reestimated
	straggling *event.Straggling
	converged  *event.Converged
}

// update refits a job, for the last time if it has ended; it returns false if the job is forgotten.
func (e *estimator) update(id train.JobID) (update, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.jobs[id]
	if q, is := e.queued[id]; is {
		j = q.job(e, id)
		return update{model: j.Model()}, j.Begins()
	}
	if j == nil {
		return update{}, false
	}
	if j.Ended {
		if !slices.Contains(e.stopped, id) {
			e.forget(id)
		}
		return update{model: j.Model()}, true
	}
	// A straggler enters the model only after its fact is stored, so that a restart finds the same.
	out := update{since: j.Since, model: j.Model(), straggling: j.Straggling(), converged: j.Converged()}
	if r, known := j.Estimate(out.model); known && j.Differs(r) {
		out.estimate = &r
	}
	return out, true
}

// note records what was published of a job.
func (e *estimator) note(id train.JobID, note func(*learn.Job)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j := e.jobs[id]; j != nil {
		note(j)
	}
}

func (e *estimator) size() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.jobs) + len(e.queued)
}
