package view

import (
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

// Tuning is the micro-batch of a job that shares its device, and the reason for it.
type Tuning struct {
	// MicroBatch is the number of samples of a pass; 0 if the code cannot change it.
	MicroBatch int `json:"micro_batch"`
	// Accumulation is the number of passes of a step.
	Accumulation int `json:"accumulation"`
	// Generation is the number of the request.
	Generation uint64 `json:"generation"`
	// Trials is the number of micro-batches that were tried.
	Trials int `json:"trials"`
	// Settled is why the search has ended; empty while it goes on.
	Settled train.Reason `json:"settled,omitzero"`
	// Beside are the other jobs on the device, with their micro-batches.
	Beside []string `json:"beside"`
}

// TuningOf returns the tuning of an attempt, or nil if it is not tuned.
func TuningOf(x *index.Index, job train.JobID, attempt int) *Tuning {
	for _, t := range x.Tunings.All() {
		own, tuned := t.Of(job, attempt)
		if !tuned {
			continue
		}
		v := &Tuning{MicroBatch: own.MicroBatch, Accumulation: own.Accumulation, Generation: t.Generation, Trials: t.Tried, Settled: t.Settled, Beside: []string{}}
		for _, other := range t.Tenants {
			if other.Job != job {
				v.Beside = append(v.Beside, strings.TrimSpace(fmt.Sprintf("%s %s", other.Job, other)))
			}
		}
		return v
	}
	return nil
}
