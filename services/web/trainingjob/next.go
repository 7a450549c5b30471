package trainingjob

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// Known is what Switchyard knows about the job of an object.
type Known struct {
	// Job is its record, Row its line in the list of jobs. Job is nil if nobody has submitted it.
	Job *train.Job
	Row view.Job
}

// lives reports whether the job may still do something.
func (k Known) lives() bool { return k.Job != nil && !k.Job.State.Terminal() }

// Step is what has to be done for an object: all of it may be done again.
type Step struct {
	// Hold and Release set and remove the finalizer. Nothing is published before it is set, and it is removed once
	// everything is published.
	Hold, Release bool
	// Suspend sets spec.suspend with the finalizer.
	Suspend bool
	// Refused says why the object's job is not submitted.
	Refused *Refusal
	// Publish are facts about the job, in order.
	Publish []Request
}

// Request is a fact that the owner of the object publishes.
type Request struct {
	Job train.JobID
	// Fact is the kind of the fact; Key tells it from others of this kind.
	Fact, Key string
	Body      any
}

// Next returns what has to be done for an object.
func Next(o Object, k Known) Step {
	deleted := !o.Metadata.DeletionTimestamp.IsZero()
	switch {
	case deleted && o.held():
		s := Step{Release: true}
		if k.lives() && !k.Job.CancelRequested {
			s.Publish = []Request{{o.JobID(), event.FactCancelRequested, o.Metadata.UID, event.CancelRequested{Reason: "the " + o.kind + " was deleted"}}}
		}
		return s
	case deleted:
		return Step{}
	case !o.held():
		return Step{Hold: true, Suspend: o.waitsForQueue()}
	}
	if submission := o.submission(k); submission != nil {
		if refused := o.refusal(); refused != nil {
			return Step{Refused: refused}
		}
		return Step{Publish: []Request{*submission}}
	}
	return Step{Publish: slices.Concat(o.edit(k), o.want(k))}
}

// waitsForQueue reports whether a new object has the label of a queue of Kueue and would run without its admission.
// Kueue admits by changing spec.suspend, which makes a new generation.
func (o Object) waitsForQueue() bool {
	return o.Metadata.Labels[queueLabel] != "" && o.Metadata.Generation <= 1 && !o.Spec.Suspend
}

// submission returns the submission that the object asks for, or nil. A job that was rejected is submitted again when
// the object changes.
func (o Object) submission(k Known) *Request {
	changed := o.Metadata.Generation > o.Status.ObservedGeneration
	id := o.firstID()
	switch {
	case o.Spec.Suspend:
		return nil
	case o.Status.JobID == "" && k.Job != nil: // stored by a process that did not live to say so
		return nil
	case o.Status.JobID == "" && o.Status.State == train.StateRejected && !changed:
		return nil
	case o.Status.JobID == "":
	case k.Job != nil && k.Job.State == train.StateRejected && changed:
		id = train.JobID(fmt.Sprintf("%s-%d", id, o.Metadata.Generation))
	default:
		return nil
	}
	return &Request{id, event.FactSubmitted, "", o.file()}
}

// editPrefix begins the keys of the object's requests.
const editPrefix = "generation-"

// editKey names the request to change the job as a generation of the object says.
func editKey(generation int64) string { return fmt.Sprintf("%s%d", editPrefix, generation) }

// edit returns the request to change the job as the object has changed since it was last looked at.
func (o Object) edit(k Known) []Request {
	if k.Job == nil || o.Status.ObservedJob == nil || o.Metadata.Generation <= o.Status.ObservedGeneration {
		return nil
	}
	set, unset := difference(o.Status.ObservedJob, o.Spec.Job)
	if len(set) == 0 && len(unset) == 0 {
		return nil
	}
	key := editKey(o.Metadata.Generation)
	body := map[string]any{"id": key, "reason": fmt.Sprintf("generation %d of the %s", o.Metadata.Generation, o.kind)}
	if len(set) > 0 {
		body["set"] = set
	}
	if len(unset) > 0 {
		body["unset"] = unset
	}
	return []Request{{o.JobID(), event.FactEditRequested, key, body}}
}

// difference returns the keys of a job file that have another value after, and those that have none any more. Single
// entries of labels are keys, too: labels.phase.
func difference(before, after map[string]any) (set map[string]any, unset []string) {
	set = map[string]any{}
	for key, value := range after {
		if !reflect.DeepEqual(before[key], value) {
			set[key] = value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		now, is := after[key]
		if !is {
			unset = append(unset, key)
			continue
		}
		had, wasMap := before[key].(map[string]any)
		has, isMap := now.(map[string]any)
		if !wasMap || !isMap {
			continue
		}
		for _, entry := range slices.Sorted(maps.Keys(had)) {
			if _, stays := has[entry]; !stays {
				unset = append(unset, key+"."+entry)
			}
		}
	}
	return set, unset
}

// want returns the request to pause the job or let it go on if spec.suspend says something else than before.
func (o Object) want(k Known) []Request {
	if !k.lives() || o.Spec.Suspend == o.Status.Suspended {
		return nil
	}
	state := train.WantRun
	if o.Spec.Suspend {
		state = train.WantPaused
	}
	return []Request{{o.JobID(), event.FactWanted, editKey(o.Metadata.Generation), event.Wanted{State: state, Reason: "spec.suspend of the " + o.kind}}}
}
