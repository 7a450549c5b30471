package view

import (
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// EpochBatch is the batch of an epoch, as the code reported it.
type EpochBatch struct {
	// Epoch counts from 1.
	Epoch int `json:"epoch"`
	// Devices is the number of devices it ran on.
	Devices int `json:"devices"`
	// Batch is what each of them had.
	Batch train.Batch `json:"batch"`
	// Efficiency is the progress per sample, relative to steps of the submitted batch; 0 if the gradient noise is not
	// reported.
	Efficiency float64 `json:"efficiency,omitempty"`
}

// shownEpochs is the number of last epochs whose batches are shown.
const shownEpochs = 10

// FactSubjects are the subjects whose facts, in their order, Fact adds to what is known about the job.
func (d *Detail) FactSubjects() []string {
	subjects := []string{event.JobSubject(d.Job.ID, event.FactSubmitted).String(), event.JobSubject(d.Job.ID, event.FactStarted).String()}
	if d.Job.Spec.KeepsBatch() {
		subjects = append(subjects, event.JobSubject(d.Job.ID, event.FactEpochEnded).String())
	}
	return subjects
}

// Fact adds a fact about the job; a body that cannot be read adds nothing.
func (d *Detail) Fact(fact string, body []byte) {
	switch fact {
	case event.FactSubmitted:
		if submitted, err := event.Decode[event.Submitted](body); err == nil {
			d.Submission = &submitted.Spec
		}
	case event.FactStarted:
		if started, err := event.Decode[event.Started](body); err == nil {
			d.Mounted = &started.Mounts
		}
	case event.FactEpochEnded:
		if e, err := event.Decode[event.EpochEnded](body); err == nil && e.Batch.LocalBatch > 0 {
			d.Batches = append(d.Batches, BatchOf(e, d.Job.Spec.BaseBatch()))
			d.Batches = d.Batches[max(len(d.Batches)-shownEpochs, 0):]
		}
	}
}

// BatchOf returns the batch of an epoch. base is the batch at which progress is counted.
func BatchOf(e event.EpochEnded, base int) EpochBatch {
	shown := EpochBatch{Epoch: e.EpochsDone, Devices: e.Devices, Batch: e.Batch}
	if e.GradSquared == nil || e.GradVariance == nil || base < 1 {
		return shown
	}
	noise := train.Efficiency{Variance: max(*e.GradVariance, 0) / float64(base), Square: max(*e.GradSquared, 0), BaseBatch: base}
	if global := e.Batch.Global(e.Devices); global > 0 && noise.Variance+noise.Square > 0 {
		shown.Efficiency = noise.Gain(global) * float64(base) / float64(global)
	}
	return shown
}
