// Package jobref finds the job that a person means.
package jobref

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// AmbiguousError reports that ref is the beginning of several ids, and the id of none.
type AmbiguousError struct {
	Ref string
	// IDs begin with Ref, the newest job first.
	IDs []train.JobID
}

// Error names a few of the ids.
func (e *AmbiguousError) Error() string {
	const shown = 5
	var names []string
	for _, id := range e.IDs[:min(len(e.IDs), shown)] {
		names = append(names, string(id))
	}
	if len(e.IDs) > shown {
		names = append(names, "..")
	}
	return fmt.Sprintf("%q begins the ids of %d jobs: %s", e.Ref, len(e.IDs), strings.Join(names, ", "))
}

// Resolve finds a job by its whole id, by its name, or by the beginning of its id, in this order. If several jobs have
// the name it returns the newest of this user, else the newest, and a rejected job only if all of them are. A job of an
// array is found by its whole id, or by an index behind what finds the array: sweep/3.
func Resolve(jobs []train.Job, ref, user string) (job train.Job, found bool, err error) {
	if job, found, err := resolveMember(jobs, ref, user); found || err != nil {
		return job, found, err
	}
	var named, begun []train.Job
	for _, j := range jobs {
		switch {
		case string(j.ID) == ref:
			return j, true, nil
		case ref == "", j.Belongs() != "":
		case j.Spec.Name == ref:
			named = append(named, j)
		case strings.HasPrefix(string(j.ID), ref):
			begun = append(begun, j)
		}
	}
	if len(named) > 0 {
		return newestOf(named, user), true, nil
	}
	switch len(begun) {
	case 0:
		return train.Job{}, false, nil
	case 1:
		return begun[0], true, nil
	}
	slices.SortFunc(begun, func(x, y train.Job) int { return CompareAge(y, x) })
	ambiguous := &AmbiguousError{Ref: ref}
	for _, j := range begun {
		ambiguous.IDs = append(ambiguous.IDs, j.ID)
	}
	return train.Job{}, false, ambiguous
}

// resolveMember finds the job of an array by its index behind what finds the array.
func resolveMember(jobs []train.Job, ref, user string) (job train.Job, found bool, err error) {
	at := strings.LastIndexByte(ref, '/')
	if at < 0 {
		return train.Job{}, false, nil
	}
	index, notIndex := strconv.Atoi(ref[at+1:])
	array, found, err := Resolve(jobs, ref[:at], user)
	if err != nil || !found || notIndex != nil {
		return train.Job{}, false, err
	}
	i := slices.IndexFunc(jobs, func(j train.Job) bool { return j.Belongs() == array.ID && j.Spec.ArrayMember.Index == index })
	if i < 0 {
		return train.Job{}, false, nil
	}
	return jobs[i], true, nil
}

// newestOf returns the newest of the user's jobs, else the newest. A rejected job gives way to others.
func newestOf(jobs []train.Job, user string) train.Job {
	for _, other := range []func(train.Job) bool{
		func(j train.Job) bool { return j.Spec.User != user },
		func(j train.Job) bool { return j.State == train.StateRejected },
	} {
		if kept := slices.DeleteFunc(slices.Clone(jobs), other); len(kept) > 0 {
			jobs = kept
		}
	}
	return slices.MaxFunc(jobs, CompareAge)
}

// CompareAge orders jobs by the time of submission, the oldest first, then by id.
func CompareAge(x, y train.Job) int {
	if c := x.SubmittedAt.Compare(y.SubmittedAt); c != 0 {
		return c
	}
	return strings.Compare(string(x.ID), string(y.ID))
}

// NearMiss returns the id or name that is most like ref, or "" if none is like it.
func NearMiss(jobs []train.Job, ref string) string {
	var known []string
	for _, j := range jobs {
		known = append(known, string(j.ID))
		if j.Spec.Name != "" {
			known = append(known, j.Spec.Name)
		}
	}
	slices.Sort(known)
	return train.NearMiss(ref, slices.Compact(known))
}
