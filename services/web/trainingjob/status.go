package trainingjob

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// StateSuspended is the state of an object whose job is not submitted before spec.suspend is false.
const StateSuspended train.State = "suspended"

// The types of the conditions.
const (
	ConditionAccepted  = "Accepted"
	ConditionSuspended = "Suspended"
	ConditionEdited    = "Edited"
	ConditionComplete  = "Complete"
	ConditionFailed    = "Failed"
)

// reasonLeaving is the reason of a condition Suspended that does not hold yet.
const reasonLeaving = "Leaving"

// Status is what the object says of its job.
type Status struct {
	// ObservedGeneration is the newest generation of the object that was looked at.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ObservedJob is spec.job of the newest generation that Switchyard took over. A later one asks for the differences.
	ObservedJob map[string]any `json:"observedJob,omitempty"`
	// JobID is the id of the job.
	JobID train.JobID `json:"jobID,omitempty"`
	// Suspended is set while the job is kept from running by spec.suspend.
	Suspended bool `json:"suspended,omitempty"`
	// State is the state of the job, or suspended before it is submitted. Reason and Message say why.
	State   train.State `json:"state,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Message string      `json:"message,omitempty"`
	// ProgressPercent is the part of the training that is done.
	ProgressPercent *int `json:"progressPercent,omitempty"`
	// PredictedFinish is when the job ends, by the newest plan.
	PredictedFinish time.Time `json:"predictedFinish,omitzero"`
	// Devices is the number of devices that the job holds or held last. DeviceNames are their names on their nodes.
	Devices     int              `json:"devices,omitempty"`
	DeviceNames []train.DeviceID `json:"deviceNames,omitempty"`
	// EnergyKWh is what the job has used.
	EnergyKWh float64 `json:"energyKWh,omitempty"`
	// StartTime is when its processes first ran, CompletionTime when it ended.
	StartTime      time.Time `json:"startTime,omitzero"`
	CompletionTime time.Time `json:"completionTime,omitzero"`
	// Conditions are Accepted, Suspended, Complete, Failed, and Edited once a change was asked for.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is a condition as Kubernetes has them.
type Condition struct {
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status string `json:"status"`
	Reason string `json:"reason"`
	// Message is the same for people.
	Message            string    `json:"message"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	ObservedGeneration int64     `json:"observedGeneration,omitempty"`
}

// Refusal is why the service web did not publish a fact: the person may not, or the fact is wrong.
type Refusal struct {
	// Fact is the kind of the fact.
	Fact string
	train.Reason
}

// After returns the status of an object once a step is done, or was refused. k is what was known before it.
func After(o Object, s Step, refused *Refusal, k Known, now time.Time) Status {
	st := o.Status
	st.Conditions = slices.Clone(st.Conditions)
	if st.JobID == "" && k.Job != nil { // stored by a process that did not live to say so
		st.JobID, st.ObservedJob = k.Job.ID, o.Spec.Job
	}
	for _, r := range s.Publish {
		if refused != nil && refused.Fact == r.Fact {
			break
		}
		st.asked(o, r)
	}
	switch {
	case st.JobID == "" && o.Spec.Suspend:
		st.State, st.Reason, st.Message = StateSuspended, "Suspended", "spec.suspend is true: the job is not submitted"
		st.Suspended = true
	case k.Job != nil && k.Job.ID == st.JobID:
		st.follow(k)
	}
	if refused != nil {
		st.refused(*refused)
	}
	st.judge(o, refused, k, now)
	st.ObservedGeneration = o.Metadata.Generation
	return st
}

// asked takes over that a request was published.
func (s *Status) asked(o Object, r Request) {
	switch r.Fact {
	case event.FactSubmitted:
		s.JobID, s.State, s.Reason, s.Message = r.Job, train.StateSubmitted, "", ""
		s.ObservedJob, s.Suspended = o.Spec.Job, false
	case event.FactEditRequested:
		s.ObservedJob = o.Spec.Job
	case event.FactWanted:
		s.Suspended = o.Spec.Suspend
	}
}

// refused says why a request was not published. What became of an edit is a condition.
func (s *Status) refused(r Refusal) {
	switch r.Fact {
	case event.FactEditRequested:
		return
	case event.FactSubmitted:
		s.State = train.StateRejected
	}
	s.Reason, s.Message = r.Code, words(r.Reason)
}

// words returns a reason with its hint. Some messages have it already.
func words(r train.Reason) string {
	text := r.Message
	if r.Field != "" {
		text = r.Field + ": " + text
	}
	if r.Hint != "" && !strings.Contains(text, r.Hint) {
		text += " (" + r.Hint + ")"
	}
	return text
}

// follow takes over what is known about the job.
func (s *Status) follow(k Known) {
	row := k.Row
	s.State, s.Reason, s.Message = row.State, row.Reason, words(train.Reason{Message: row.Message, Hint: k.Job.Hint})
	s.ProgressPercent, s.PredictedFinish = nil, time.Time{}
	if row.Progress != nil {
		s.ProgressPercent = new(render.Percent(*row.Progress))
	}
	if f := row.Predicted.Finish; f != nil {
		s.PredictedFinish = f.Expected.UTC().Truncate(time.Second)
	}
	s.Devices, s.DeviceNames = len(row.Devices), row.Devices
	const milliwattHours = 1e6
	s.EnergyKWh = math.Round(row.Energy.KilowattHours()*milliwattHours) / milliwattHours
	s.StartTime, s.CompletionTime = row.StartedAt.UTC().Truncate(time.Second), row.FinishedAt.UTC().Truncate(time.Second)
}

// judge sets the conditions by the state.
func (s *Status) judge(o Object, refused *Refusal, k Known, now time.Time) {
	set := func(kind string, status bool, reason train.Reason) {
		c := Condition{Type: kind, Status: "False", Reason: reason.Code, Message: words(reason), ObservedGeneration: o.Metadata.Generation}
		if status {
			c.Status = "True"
		}
		s.set(c, now)
	}
	why := train.Reason{Code: cmp.Or(s.Reason, string(s.State)), Message: s.Message}
	switch {
	case s.State == train.StateRejected:
		set(ConditionAccepted, false, why)
	case s.State == train.StateSubmitted:
		s.set(Condition{Type: ConditionAccepted, Status: "Unknown", Reason: "Submitted", Message: "admission has not read the job", ObservedGeneration: o.Metadata.Generation}, now)
	case s.JobID != "":
		set(ConditionAccepted, true, train.Reason{Code: "Admitted", Message: "Switchyard has admitted the job " + string(s.JobID)})
	}
	switch {
	case s.State == StateSuspended || s.Suspended && !s.State.Active():
		set(ConditionSuspended, true, train.Reason{Code: "Suspended", Message: "spec.suspend is true, and the job holds no device"})
	case s.Suspended:
		set(ConditionSuspended, false, train.Reason{Code: "Leaving", Message: "spec.suspend is true, and the job leaves its devices at its next checkpoint"})
	default:
		set(ConditionSuspended, false, train.Reason{Code: "Resumed", Message: "spec.suspend is false"})
	}
	if !s.State.Terminal() {
		why = train.Reason{Code: "NotEnded", Message: "the job has not ended"}
	}
	set(ConditionComplete, s.State == train.StateSucceeded, why)
	set(ConditionFailed, s.State.Terminal() && s.State != train.StateSucceeded, why)
	if c, decided := edited(o, refused, k); decided && c.ObservedGeneration >= s.condition(ConditionEdited).ObservedGeneration {
		s.set(c, now)
	}
}

// condition returns a condition; it is empty if the status has none of this type.
func (s *Status) condition(kind string) Condition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return Condition{}
}

// set sets a condition. It keeps the time at which its status became what it is.
func (s *Status) set(c Condition, now time.Time) {
	c.LastTransitionTime = now.UTC().Truncate(time.Second)
	i := slices.IndexFunc(s.Conditions, func(other Condition) bool { return other.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}

// edited returns what became of the newest request of the object to change the job. decided is false if there was none,
// or nobody has decided on it.
func edited(o Object, refused *Refusal, k Known) (c Condition, decided bool) {
	c = Condition{Type: ConditionEdited, Status: "False", ObservedGeneration: o.Metadata.Generation}
	if refused != nil && refused.Fact == event.FactEditRequested {
		c.Reason, c.Message = refused.Code, words(refused.Reason)
		return c, true
	}
	if k.Job == nil {
		return c, false
	}
	for _, answer := range slices.Backward(k.Job.Edits) {
		number, ours := strings.CutPrefix(answer.ID, editPrefix)
		generation, err := strconv.ParseInt(number, 10, 64)
		if !ours || err != nil {
			continue
		}
		c.ObservedGeneration = generation
		if len(answer.Refused) > 0 {
			c.Reason, c.Message = answer.Refused[0].Code, words(answer.Refused[0])
		} else {
			c.Status, c.Reason, c.Message = "True", "Edited", "the job has the values of the object"
		}
		return c, true
	}
	return c, false
}
