package profiler

import (
	"encoding/json"
	"unique"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// queued is an admitted job that has not been heard of since. A queue may be long, so what follows from the
// specification is made when it is needed.
type queued struct {
	// spec is the specification as JSON, without the index in an array: all jobs of an array share it.
	spec   unique.Handle[string]
	family unique.Handle[string]
	// peaks is the memory that jobs of its program had needed when it was admitted.
	peaks []curve.MemoryPoint
}

// admit begins with a job. What its family has taught already makes a model, and so does the memory of jobs of its
// program.
func (e *estimator) admit(id train.JobID, spec train.Spec) {
	spec.ArrayMember = nil
	encoded, err := json.Marshal(spec)
	if err != nil { // it was decoded from JSON
		panic(err)
	}
	j := e.begin(id, spec, e.peaks.Of(curve.KindOf(spec).Family))
	e.queued[id] = queued{unique.Make(string(encoded)), unique.Make(j.Family()), j.Peaks}
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

// job returns what follows from the specification.
func (q queued) job(e *estimator, id train.JobID) *learn.Job {
	var spec train.Spec
	if err := json.Unmarshal([]byte(q.spec.Value()), &spec); err != nil { // admit has encoded it
		panic(err)
	}
	return e.begin(id, spec, q.peaks)
}

// unqueue returns a job, and from now on keeps what follows from its facts; nil if it was never admitted.
func (e *estimator) unqueue(id train.JobID) *learn.Job {
	if q, is := e.queued[id]; is {
		delete(e.queued, id)
		e.jobs[id] = q.job(e, id)
	}
	return e.jobs[id]
}
