package train

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Tuning is with which micro-batches the jobs that share a device shall run. It is a wish that stands, not a command: whoever hears of it late, or twice, does
// the same.
type Tuning struct {
	Node   NodeID   `json:"node"`
	Device DeviceID `json:"device"`
	// Generation is another one whenever a micro-batch is. Whoever tells how a job runs with it tells the generation, too.
	Generation uint64 `json:"generation"`
	// Since is when the generation began.
	Since   time.Time     `json:"since"`
	Tenants []TunedTenant `json:"tenants"`
	// Tried is how many combinations were measured.
	Tried int `json:"tried"`
	// Settled is why nothing more is tried; empty while the jobs are being tuned.
	Settled Reason `json:"settled,omitzero"`
}

// TunedTenant is one of the jobs on a device.
type TunedTenant struct {
	Job     JobID `json:"job"`
	Attempt int   `json:"attempt"`
	// MicroBatch is the number of samples of a pass; 0 for a job that cannot change it.
	MicroBatch int `json:"micro_batch,omitempty"`
	// Accumulation is the number of passes that make an optimizer step. The last one may be smaller.
	Accumulation int `json:"accumulation,omitempty"`
	// Enlarged: the optimizer step is larger than the submitted one.
	Enlarged bool `json:"enlarged,omitempty"`
}

// TuningKey is where the tuning of a device is kept.
func TuningKey(node NodeID, device DeviceID) string {
	return string(node) + "." + strings.ReplaceAll(string(device), ":", ".")
}

// Of finds a job among the tenants.
func (t Tuning) Of(job JobID, attempt int) (TunedTenant, bool) {
	i := slices.IndexFunc(t.Tenants, func(one TunedTenant) bool { return one.Job == job && one.Attempt == attempt })
	if i < 0 {
		return TunedTenant{}, false
	}
	return t.Tenants[i], true
}

// String is the micro-batch as a person reads it: 16 x 4 are four passes of 16 samples.
func (t TunedTenant) String() string {
	if t.MicroBatch == 0 {
		return ""
	}
	return fmt.Sprintf("%dx%d", t.MicroBatch, t.Accumulation)
}
