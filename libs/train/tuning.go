package train

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Tuning is the desired micro-batches of the jobs that share a device. It is desired state, not a command: a late or
// repeated delivery has the same effect.
type Tuning struct {
	Node   NodeID   `json:"node"`
	Device DeviceID `json:"device"`
	// Generation changes whenever a micro-batch changes. Reports of step times carry the generation they were measured
	// under.
	Generation uint64 `json:"generation"`
	// Since is the time when the generation began.
	Since   time.Time  `json:"since"`
	Tenants []TunedJob `json:"tenants"`
	// Tried is the number of combinations measured.
	Tried int `json:"tried"`
	// Settled is the reason why nothing more is tried; empty during the tuning.
	Settled Reason `json:"settled,omitzero"`
}

// TunedJob is one of the jobs on a device.
type TunedJob struct {
	Job     JobID `json:"job"`
	Attempt int   `json:"attempt"`
	// MicroBatch is the number of samples of a pass; 0 for a job that cannot change it.
	MicroBatch int `json:"micro_batch,omitempty"`
	// Accumulation is the number of passes that make an optimizer step. The last one may be smaller.
	Accumulation int `json:"accumulation,omitempty"`
	// Enlarged reports that the optimizer step is larger than the submitted one.
	Enlarged bool `json:"enlarged,omitempty"`
}

// TuningKey returns the key of the tuning of a device.
func TuningKey(node NodeID, device DeviceID) string {
	return string(node) + "." + strings.ReplaceAll(string(device), ":", ".")
}

// Of finds a job on the device.
func (t Tuning) Of(job JobID, attempt int) (TunedJob, bool) {
	i := slices.IndexFunc(t.Tenants, func(one TunedJob) bool { return one.Job == job && one.Attempt == attempt })
	if i < 0 {
		return TunedJob{}, false
	}
	return t.Tenants[i], true
}

// String is the micro-batch as a person reads it: 16 x 4 are four passes of 16 samples.
func (t TunedJob) String() string {
	if t.MicroBatch == 0 {
		return ""
	}
	return fmt.Sprintf("%dx%d", t.MicroBatch, t.Accumulation)
}
