package describe

import (
	"context"
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TuningView is the micro-batch of a job that shares its device, and the reason for it. MicroBatch is 0 if the code
// cannot change it.
type TuningView struct {
	MicroBatch   int          `json:"micro_batch"`
	Accumulation int          `json:"accumulation"`
	Generation   uint64       `json:"generation"`
	Trials       int          `json:"trials"`
	Settled      train.Reason `json:"settled,omitzero"`
	Beside       []string     `json:"beside"`
}

// Tunings reads the micro-batches of all jobs that share devices.
func Tunings(ctx context.Context, b *bus.Bus) ([]train.Tuning, error) {
	return console.ListBucket(ctx, b, contract.Tunings)
}

// ViewTuning returns the tuning of an attempt, or nil if it is not tuned.
func ViewTuning(all []train.Tuning, job train.JobID, attempt int) *TuningView {
	for _, t := range all {
		own, tuned := t.Of(job, attempt)
		if !tuned {
			continue
		}
		v := &TuningView{MicroBatch: own.MicroBatch, Accumulation: own.Accumulation, Generation: t.Generation, Trials: t.Tried, Settled: t.Settled, Beside: []string{}}
		for _, other := range t.Tenants {
			if other.Job != job {
				v.Beside = append(v.Beside, strings.TrimSpace(fmt.Sprintf("%s %s", other.Job, other)))
			}
		}
		return v
	}
	return nil
}

// Batch is the micro-batch times the passes of a step.
func (v *TuningView) Batch() string {
	if v == nil {
		return "-"
	}
	return render.Dash(train.TunedJob{MicroBatch: v.MicroBatch, Accumulation: v.Accumulation}.String())
}

func (p *page) tuning(v *TuningView) {
	if v == nil {
		return
	}
	line := "as submitted: the code does not follow a micro-batch"
	if v.MicroBatch > 0 {
		line = fmt.Sprintf("%d samples, %s to a step", v.MicroBatch, counted(v.Accumulation, "pass", "passes"))
	}
	if len(v.Beside) > 0 {
		line += ", beside " + strings.Join(v.Beside, ", ")
	}
	p.field("micro-batch", "%s", line)
	why := "being tuned"
	if v.Settled.Code != "" {
		why = because(v.Settled)
	}
	p.field("", "%s (generation %d, %s)", why, v.Generation, render.Plural(v.Trials, "trial"))
}
