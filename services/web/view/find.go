package view

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/jobref"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// UnknownJobError reports that no job is meant. Fix says what may be.
type UnknownJobError struct{ Ref, Fix string }

// Error implements error.
func (e *UnknownJobError) Error() string { return fmt.Sprintf("no job %q", e.Ref) }

// JobsListed is the advice for a reference that is like no job's.
const JobsListed = "`switchyard ps -A` lists the jobs"

// Find returns the job that a user means by an id, a name or the beginning of an id. It fails with UnknownJobError or
// jobref.AmbiguousError.
func Find(x *index.Index, ref, user string) (*train.Job, error) {
	if job := x.Jobs.Get(ref); job != nil {
		return job, nil
	}
	var jobs []train.Job
	for _, j := range x.Jobs.All() {
		jobs = append(jobs, *j)
	}
	job, found, err := jobref.Resolve(jobs, ref, user)
	if err != nil {
		return nil, err
	}
	if found {
		return &job, nil
	}
	fix := JobsListed
	if near := jobref.NearMiss(jobs, ref); near != "" {
		fix = fmt.Sprintf("did you mean %s?", near)
	}
	return nil, &UnknownJobError{ref, fix}
}

// Unread is a job whose submission is stored and which admission has not read yet.
func Unread(id train.JobID, spec train.Spec) train.Job {
	return train.Job{
		ID: id, Spec: spec, State: train.StateSubmitted, Reason: "Submitted",
		Message: "the submission is stored; admission has not read it yet", Hint: "is the admission service running?",
	}
}
