package explain

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// batchChoice prints the planned batch of a job whose batch the planner chooses, and why it was chosen.
func (p *page) batchChoice(d Job) {
	if own := d.Job.OwnBatch; own > 0 {
		p.field("batch", "passes of %d on each device: the code does not follow the batch that it is asked for, so that the job is planned with its own", own)
		return
	}
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
func (p *page) batches(all []view.EpochBatch, base int) {
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
