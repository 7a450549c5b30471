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

// batches prints the batches of the last epochs.
func (p *page) batches(all []epochBatch, base int) {
	if len(all) == 0 {
		return
	}
	p.section(fmt.Sprintf("batches of the last %s; efficiency is progress per sample, relative to steps of %d", render.Plural(len(all), "epoch"), base))
	var lines []string
	for _, e := range all {
		efficiency := "-"
		if e.Efficiency > 0 {
			efficiency = fmt.Sprintf("%.0f %%", 100*e.Efficiency)
		}
		lines = append(lines, fmt.Sprintf("%d\t%d\t%d\t%d x %d\t%s", e.Epoch, e.Devices, e.Batch.Global(e.Devices), e.Batch.Passes(), e.Batch.LocalBatch, efficiency))
	}
	p.rows("EPOCH\tDEVICES\tSTEP\tPASSES\tEFFICIENCY", lines)
}
