package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// tuningView is with which micro-batch a job shall run that shares its device, and why. MicroBatch is 0 where its code cannot follow.
type tuningView struct {
	MicroBatch   int          `json:"micro_batch"`
	Accumulation int          `json:"accumulation"`
	Generation   uint64       `json:"generation"`
	Trials       int          `json:"trials"`
	Settled      train.Reason `json:"settled,omitzero"`
	Beside       []string     `json:"beside"`
}

// tunings reads how jobs that share devices are tuned.
func tunings(ctx context.Context, b *bus.Bus) ([]train.Tuning, error) {
	return listBucket[train.Tuning](ctx, b, event.BucketTunings)
}

// viewTuning picks what concerns an attempt; nil where nothing does.
func viewTuning(all []train.Tuning, job train.JobID, attempt int) *tuningView {
	for _, t := range all {
		own, tuned := t.Of(job, attempt)
		if !tuned {
			continue
		}
		v := &tuningView{MicroBatch: own.MicroBatch, Accumulation: own.Accumulation, Generation: t.Generation, Trials: t.Tried, Settled: t.Settled, Beside: []string{}}
		for _, other := range t.Tenants {
			if other.Job != job {
				v.Beside = append(v.Beside, strings.TrimSpace(fmt.Sprintf("%s %s", other.Job, other)))
			}
		}
		return v
	}
	return nil
}

// batch is the micro-batch times the passes of a step.
func (v *tuningView) batch() string {
	if v == nil {
		return "-"
	}
	return dash(train.TunedTenant{MicroBatch: v.MicroBatch, Accumulation: v.Accumulation}.String())
}

// tuned is whether any of the listed jobs has a micro-batch to show.
func tuned(rows []psRow) bool {
	return slices.ContainsFunc(rows, func(r psRow) bool { return r.Tuning != nil })
}

func (p *page) tuning(v *tuningView) {
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
		why = fmt.Sprintf("%s - %s", escapeText(v.Settled.Code), escapeText(v.Settled.String()))
	}
	p.field("", "%s (generation %d, %s)", why, v.Generation, plural(v.Trials, "trial"))
}
