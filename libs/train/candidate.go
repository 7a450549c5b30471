package train

import "encoding/json"

// The subjects on which services say what they would make of a job that is not submitted. Admission answers a Candidate
// with the record that the job would have; the profiler answers a Spec with the model that the job would begin with.
const (
	CandidateSubject = "switchyard.admission.candidate"
	ModelSubject     = "switchyard.profiler.model"
)

// Candidate is a job that is not submitted.
type Candidate struct {
	ID JobID `json:"id"`
	// Spec is the body that a submission would have.
	Spec json.RawMessage `json:"spec"`
}
