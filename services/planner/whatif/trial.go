package whatif

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Trial is what the next plan would be with one more job.
type Trial struct {
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
	// PowerWatts is the most that its devices are known to draw together; 0 if that is unknown.
	PowerWatts float64 `json:"power_w,omitempty"`
}

// Move is another allocation of a job. Places are empty if it would have to leave.
type Move struct {
	Job    train.JobID  `json:"job"`
	Places []train.Part `json:"places,omitempty"`
	Reason train.Reason `json:"reason,omitzero"`
}

// NewTrial compares the newest plan with the next one about a job.
func NewTrial(last, next train.Plan, job train.JobID) Trial {
	t := Trial{Predicted: next.Predicted(job)}
	if a, found := next.Find(job); found {
		t.Allocation = &a
	}
	for i, w := range next.Waiting {
		if w.Job != job {
			continue
		}
		t.Waiting, t.Holders = &next.Waiting[i], w.Holders
		for _, earlier := range next.Waiting[:i] {
			t.Before = append(t.Before, earlier.Job)
		}
	}
	for _, a := range next.Allocations {
		before, held := last.Find(a.Job)
		switch {
		case a.Job == job:
		case !held:
			t.Starts = append(t.Starts, a.Job)
		case !slices.EqualFunc(before.Places(), a.Places(), train.Part.Same):
			t.Moved = append(t.Moved, Move{a.Job, a.Places(), a.Reason})
		}
	}
	for _, w := range next.Waiting {
		if _, held := last.Find(w.Job); held && len(w.Blockers) > 0 {
			t.Moved = append(t.Moved, Move{Job: w.Job, Reason: w.Blockers[0]})
		}
	}
	return t
}
