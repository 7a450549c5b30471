package describe

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// epochBatch is the batch of an epoch, as the code reported it.
type epochBatch struct {
	Epoch   int         `json:"epoch"`
	Devices int         `json:"devices"`
	Batch   train.Batch `json:"batch"`
	// Efficiency is the progress per sample, relative to steps of the submitted batch; 0 if the gradient noise is not
	// reported.
	Efficiency float64 `json:"efficiency,omitempty"`
}

// shownEpochs is the number of last epochs that are shown.
const shownEpochs = 10

// readBatches reads the batches of the last epochs of a job with a global batch.
func readBatches(ctx context.Context, b *bus.Bus, job train.Job) ([]epochBatch, error) {
	if !job.Spec.KeepsBatch() {
		return nil, nil
	}
	var all []epochBatch
	subject := event.JobSubject(job.ID, event.FactEpochEnded).String()
	err := b.Stored(ctx, event.StreamJobs, []string{subject}, time.Time{}, func(m bus.Message) {
		e, err := event.Decode[event.EpochEnded](m.Data)
		if err != nil || e.Batch.LocalBatch == 0 {
			return
		}
		all = append(all, batchOf(e, job.Spec.BaseBatch()))
		all = all[max(len(all)-shownEpochs, 0):]
	})
	return all, err
}

// batchOf returns the batch of an epoch. base is the batch at which progress is counted.
func batchOf(e event.EpochEnded, base int) epochBatch {
	shown := epochBatch{Epoch: e.EpochsDone, Devices: e.Devices, Batch: e.Batch}
	if e.GradSquared == nil || e.GradVariance == nil || base < 1 {
		return shown
	}
	noise := train.Efficiency{Variance: max(*e.GradVariance, 0) / float64(base), Square: max(*e.GradSquared, 0), BaseBatch: base}
	if global := e.Batch.Global(e.Devices); global > 0 && noise.Variance+noise.Square > 0 {
		shown.Efficiency = noise.Gain(global) * float64(base) / float64(global)
	}
	return shown
}

// batchChoice prints the planned batch of a job whose batch the planner chooses, and why it was chosen.
func (p *page) batchChoice(d description) {
	if d.Plan == nil || d.Plan.Allocation == nil || d.Job.Spec.AdaptiveBatch == nil {
		return
	}
	a := d.Plan.Allocation
	b := d.Job.Spec.BatchIn(*a)
	steps := fmt.Sprintf("steps of %d", b.Global(len(train.AllDevices(a.Places()))))
	if a.BatchChoice == nil {
		p.field("batch", "%s, as submitted: plan %d by %s chose none", steps, d.Plan.Generation, d.Plan.Policy)
		return
	}
	r := a.BatchChoice.Reason
	p.field("batch", "%s in plan %d: %s", steps, d.Plan.Generation, because(r))
	if len(a.BatchChoice.Options) < 2 {
		return
	}
	var lines []string
	for _, o := range a.BatchChoice.Options {
		mark := ""
		if o.Chosen {
			mark = "chosen"
		}
		lines = append(lines, fmt.Sprintf("%d\t%d x %d\t%s\t%s\t%.3g\t%s", o.GlobalBatch, o.Batch.Passes(), o.Batch.LocalBatch, render.StepTime(o.StepSeconds), percent(o.Efficiency), o.Goodput, mark))
	}
	p.rows("STEP\tPASSES\tTIME\tEFFICIENCY\tPROGRESS/S\t", lines)
}

// percent prints a share, or - if it is unknown.
func percent(share float64) string {
	if share <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// batches prints the batches of the last epochs.
func (p *page) batches(all []epochBatch, base int) {
	if len(all) == 0 {
		return
	}
	p.section(fmt.Sprintf("batches of the last %s; efficiency is progress per sample, relative to steps of %d", render.Plural(len(all), "epoch"), base))
	var lines []string
	for _, e := range all {
		lines = append(lines, fmt.Sprintf("%d\t%d\t%d\t%d x %d\t%s", e.Epoch, e.Devices, e.Batch.Global(e.Devices), e.Batch.Passes(), e.Batch.LocalBatch, percent(e.Efficiency)))
	}
	p.rows("EPOCH\tDEVICES\tSTEP\tPASSES\tEFFICIENCY", lines)
}
