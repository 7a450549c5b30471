package profiler

import (
	"bytes"
	"unique"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// queued is an admitted job that has not been heard of since. A queue may be long, so that it is kept as the fact that
// admitted it, a third of the size of what follows from it.
type queued struct {
	admitted []byte
	family   unique.Handle[string]
	// peaks is the memory that jobs of its program had needed when it was admitted.
	peaks []curve.MemoryPoint
}

// admit begins with a job. What its family has taught already makes a model, and so does the memory of jobs of its
// program.
func (e *estimator) admit(id train.JobID, spec train.Spec, admitted []byte) {
	j := e.begin(id, spec, e.peaks.Of(curve.KindOf(spec).Family))
	e.queued[id] = queued{bytes.Clone(admitted), unique.Make(j.Family()), j.Peaks}
	if j.Begins() {
		e.fresh[id] = struct{}{}
		e.wake.Send()
	}
}

// begin returns a job that has not run, with what its family has taught.
func (e *estimator) begin(id train.JobID, spec train.Spec, peaks []curve.MemoryPoint) *learn.Job {
	j := learn.New(id, spec, e.interference.device)
	j.Peaks = peaks
	e.library.Lend(j)
	return j
}

// job returns what follows from the fact.
func (q queued) job(e *estimator, id train.JobID) *learn.Job {
	b, err := event.Decode[event.Admitted](q.admitted)
	if err != nil { // fact has decoded the same bytes
		panic(err)
	}
	return e.begin(id, b.Spec, q.peaks)
}

// unqueue returns a job, and from now on keeps what follows from its facts; nil if it was never admitted.
func (e *estimator) unqueue(id train.JobID) *learn.Job {
	if q, is := e.queued[id]; is {
		delete(e.queued, id)
		e.jobs[id] = q.job(e, id)
	}
	return e.jobs[id]
}
