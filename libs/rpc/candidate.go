package rpc

import (
	"encoding/json"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The subjects on which services say what they would make of a job that is not submitted. Admission answers a Candidate
// with the record that the job would have; the profiler answers a Spec with the model that the job would begin with.
const (
	CandidateSubject = "switchyard.admission.candidate"
	ModelSubject     = "switchyard.profiler.model"
)

// Candidate is a job that is not submitted.
type Candidate struct {
	ID train.JobID `json:"id"`
	// Spec is the body that a submission would have.
	Spec json.RawMessage `json:"spec"`
	// By is the person who would submit it, Door how he has come to the service web. The bus lets web and the operator
	// alone ask.
	By   string `json:"by,omitempty"`
	Door string `json:"door,omitempty"`
}

// Rehearsal is what would become of a job that is not submitted.
type Rehearsal struct {
	// Job is the record that it would have; if admission would reject it, with every reason.
	Job train.Job `json:"job"`
	// Plan is what the next plan would mean for it; nil if it would be rejected.
	Plan *Outlook `json:"plan,omitempty"`
	// Rates are what energy costs; without a tariff there are none.
	Rates train.EnergyRates `json:"rates,omitzero"`
}
