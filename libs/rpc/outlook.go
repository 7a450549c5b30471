package rpc

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// OutlookSubject is where the planner answers an OutlookRequest with an OutlookAnswer.
const OutlookSubject = "switchyard.planner.outlook"

// OutlookRequest asks what the next plan would be if a job that waits or runs were different, or if another policy
// decided. Nothing is changed.
type OutlookRequest struct {
	// Job is the job that would differ; empty to ask about policies.
	Job train.JobID `json:"job,omitempty"`
	// Candidate is the record of a job that is not submitted; it takes the place of Job.
	Candidate *train.Job `json:"candidate,omitempty"`
	// Variants are tried one by one.
	Variants []Variant `json:"variants"`
}

// Variant is a job with one wish more, or another policy. The zero Variant is everything as it is.
type Variant struct {
	// Policy is the name of another policy.
	Policy string `json:"policy,omitempty"`
	// Devices is another number of devices, neither less nor more; 0: as it is.
	Devices int `json:"devices,omitempty"`
	// Priority is another priority.
	Priority *int `json:"priority,omitempty"`
	// Share allows the job to share its devices.
	Share bool `json:"share,omitempty"`
}

// Apply returns the spec of the variant, or why it cannot be tried.
func (c Variant) Apply(s train.Spec) (train.Spec, *train.Reason) {
	if c.Devices > 1 && s.SingleDevice {
		return s, &train.Reason{Code: "SingleDevice", Field: "devices", Message: "its code supports one device alone (single_device)"}
	}
	next, err := s.Edited(train.Edit{Set: train.Editable{Devices: c.Devices, Priority: c.Priority}})
	if err != nil {
		return s, &train.Reason{Code: "MalformedJSON", Message: err.Error()}
	}
	if c.Share {
		next.AllowSharing, next.DisableSharing = true, false
	}
	next = next.WithDefaults()
	if c.Share && next.SharedMemory() == 0 {
		return s, &train.Reason{
			Code: "MemoryUnknown", Field: "estimated_memory_mib", Message: "it does not say how much memory of a device it takes, so it cannot have a part of one",
			Hint: "give estimated_memory_mib; a job with parameter servers shares no device",
		}
	}
	return next, nil
}

// OutlookAnswer is the answer of the planner.
type OutlookAnswer struct {
	// DecidedAt is the time of the plans that were compared.
	DecidedAt time.Time `json:"decided_at"`
	// Outlooks are first that of the job as it is, then those of the variants in their order.
	Outlooks []JobOutlook `json:"outlooks"`
}

// JobOutlook is what would become of a variant of a job.
type JobOutlook struct {
	Variant
	// Refused is why it cannot be tried.
	Refused *train.Reason `json:"refused,omitempty"`
	*Outlook
}

// Outlook is what the next plan would mean for one job, and for the others.
type Outlook struct {
	// Allocation is what the job would get at once, Waiting why it would get nothing.
	Allocation *train.Allocation `json:"allocation,omitempty"`
	Waiting    *train.Waiting    `json:"waiting,omitempty"`
	// Predicted is when it would start and end.
	Predicted train.Predicted `json:"predicted,omitzero"`
	// Before are the jobs that would wait before it in the queue, Holders those whose devices it could use.
	Before  []train.JobID `json:"before,omitempty"`
	Holders []train.JobID `json:"holders,omitempty"`
	// Starts are other jobs that would get devices by this plan and have none by the newest one, Moved those that would
	// have other devices than they have.
	Starts []train.JobID `json:"starts,omitempty"`
	Moved  []Move        `json:"moved,omitempty"`
	// Shifted are other jobs that would end at another time than if the job stayed as it is, those that lose most first.
	// ShiftedMore is the number of such jobs that are left out.
	Shifted     []Shift `json:"shifted,omitempty"`
	ShiftedMore int     `json:"shifted_more,omitempty"`
	// PowerWatts is the most that its devices are known to draw together; 0 if that is unknown.
	PowerWatts float64 `json:"power_w,omitempty"`
	// Energy is that of its run from now on; nil if its length or the power of its devices is unknown.
	Energy *EnergyOutlook `json:"energy,omitempty"`
}

// Move is another allocation of a job.
type Move struct {
	// Job is who would move.
	Job train.JobID `json:"job"`
	// Places are its devices then; none if it would have to leave.
	Places []train.Part `json:"places,omitempty"`
	// Reason is why.
	Reason train.Reason `json:"reason,omitzero"`
}

// Shift is another predicted end of a job.
type Shift struct {
	// Job is whose end it is.
	Job train.JobID `json:"job"`
	// Finish is when it would end; nil if that would be unknown.
	Finish *train.Moment `json:"finish,omitempty"`
	// Seconds is how much later that is; less than 0 is sooner.
	Seconds float64 `json:"seconds,omitempty"`
}

// EnergyOutlook is the energy that a run takes if its devices draw all the time what they draw at most.
type EnergyOutlook struct {
	// Joules is the energy of the most likely run.
	Joules float64 `json:"joules"`
	// LowJoules is that of the shortest run of the interval, HighJoules that of the longest.
	LowJoules  float64 `json:"low_joules"`
	HighJoules float64 `json:"high_joules"`
}

// EnergyFrom returns the energy of the predicted run from now on; nil if its length or the power of its devices is
// unknown.
func (o Outlook) EnergyFrom(now time.Time) *EnergyOutlook {
	finish := o.Predicted.Finish
	if finish == nil || o.PowerWatts <= 0 {
		return nil
	}
	start := train.Moment{Expected: now, Low: now, High: now}
	if o.Predicted.Start != nil {
		start = *o.Predicted.Start
	}
	joules := func(from, to time.Time) float64 { return o.PowerWatts * max(to.Sub(from).Seconds(), 0) }
	return &EnergyOutlook{
		Joules: joules(start.Expected, finish.Expected), LowJoules: joules(start.Low, finish.Low), HighJoules: joules(start.High, finish.High),
	}
}
