package train

import (
	"fmt"
	"slices"
)

// AfterSpec names jobs that must have ended before the job starts, by their ids. They must have been submitted before,
// so jobs cannot wait for each other.
type AfterSpec struct {
	// OK are jobs that must have succeeded.
	OK []JobID `json:"ok,omitempty"`
	// Any are jobs that must have ended in any way.
	Any []JobID `json:"any,omitempty"`
	// Failed are jobs that must have failed or been cancelled.
	Failed []JobID `json:"failed,omitempty"`
}

// Dependency is one job that another waits for.
type Dependency struct {
	// Job is the id of the job, On its required end: ok, any or failed.
	Job JobID  `json:"job"`
	On  string `json:"on"`
}

// The ends that a job can wait for.
const (
	AfterOK     = "ok"
	AfterAny    = "any"
	AfterFailed = "failed"
)

// Add makes the job wait for another; it returns false if there is no such end.
func (s *AfterSpec) Add(d Dependency) bool {
	ids, known := map[string]*[]JobID{AfterOK: &s.OK, AfterAny: &s.Any, AfterFailed: &s.Failed}[d.On]
	if known {
		*ids = append(*ids, d.Job)
	}
	return known
}

// Dependencies returns the jobs that the job was submitted to wait for.
func (s Spec) Dependencies() []Dependency {
	if s.After == nil {
		return nil
	}
	var all []Dependency
	for _, id := range s.After.OK {
		all = append(all, Dependency{id, AfterOK})
	}
	for _, id := range s.After.Any {
		all = append(all, Dependency{id, AfterAny})
	}
	for _, id := range s.After.Failed {
		all = append(all, Dependency{id, AfterFailed})
	}
	return all
}

// Never reports whether the end of the other job, once it has ended as given, is not the required one.
func (d Dependency) Never(ended State) bool {
	return d.On == AfterOK && ended != StateSucceeded || d.On == AfterFailed && ended != StateFailed && ended != StateCancelled
}

// Reason says in words what is waited for.
func (d Dependency) Reason() Reason {
	return Reason{Code: "Dependency", Message: fmt.Sprintf("waits for %s to %s", d.Job, d.verb())}
}

func (d Dependency) verb() string {
	switch d.On {
	case AfterOK:
		return "succeed"
	case AfterFailed:
		return "fail"
	}
	return "end"
}

// Unmet is the reason for a job that waits for what cannot happen any more.
func (d Dependency) Unmet(ended State) Reason {
	return Reason{
		Code: "DependencyNeverSatisfied", Field: "after." + d.On,
		Message: fmt.Sprintf("waits for %s to %s, and that job has ended as %s", d.Job, d.verb(), ended),
	}
}

// Awaits returns the jobs that the job still waits for.
func (j Job) Awaits() []Dependency {
	return slices.DeleteFunc(j.dependencies(), func(d Dependency) bool {
		_, ended := j.Ended[d.Job]
		return ended
	})
}

// NeverStarts returns why the job can never start; false if it can.
func (j Job) NeverStarts() (Reason, bool) {
	for _, d := range j.dependencies() {
		if state, ended := j.Ended[d.Job]; ended && d.Never(state) {
			return d.Unmet(state), true
		}
	}
	return Reason{}, false
}
