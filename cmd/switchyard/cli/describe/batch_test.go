package describe

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/explain"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// TestDescribeShowsTheBatchOfEachEpoch: with a noise scale of 64 samples, steps four times as large as 64 make
// (1+1)/(1/4+1) times the progress for four times the samples.
func TestDescribeShowsTheBatchOfEachEpoch(t *testing.T) {
	epochs := []event.EpochEnded{
		{EpochsDone: 1, Devices: 1, Batch: train.Batch{Samples: 64, LocalBatch: 64}},
		{EpochsDone: 2, Devices: 3, Batch: train.Batch{Samples: 256, LocalBatch: 43, Accumulation: 1}, GradSquared: new(2.0), GradVariance: new(128.0)},
	}
	d := explain.Job{Job: train.Job{ID: "x", State: train.StateRunning, Spec: train.Spec{BatchSize: 64, GlobalBatchSize: 64}}}
	for _, e := range epochs {
		d.Batches = append(d.Batches, view.BatchOf(e, 64))
	}
	text := strings.Join(strings.Fields(explain.Explain(d, clitest.Noon).String()), " ")
	if want := "EPOCH DEVICES STEP PASSES EFFICIENCY 1 1 64 1 x 64 - 2 3 256 2 x 43 40 %"; !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
}

// TestDescribeSaysWhyABatchWasChosen with what was predicted of it and of its neighbours.
func TestDescribeSaysWhyABatchWasChosen(t *testing.T) {
	spec := train.Spec{BatchSize: 64, GlobalBatchSize: 64, AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 512}}
	a := train.Allocation{
		Node: "n", Devices: []train.DeviceID{"gpu:0"}, Batch: train.Batch{LocalBatch: 76},
		BatchChoice: &train.BatchChoice{Reason: train.Reason{Code: "MostProgress", Message: "predicted to make the most"}, Options: []train.BatchOption{
			{Batch: train.Batch{LocalBatch: 64}, GlobalBatch: 64, StepSeconds: 2.5, Efficiency: 1, Goodput: 10},
			{Batch: train.Batch{LocalBatch: 76}, GlobalBatch: 76, StepSeconds: 3.5, Efficiency: 0.95, Goodput: 10.26, Chosen: true},
		}},
	}
	d := explain.Job{Job: train.Job{ID: "x", State: train.StateRunning, Spec: spec}, Plan: &view.Plan{Generation: 7, Policy: "switchyard", Allocation: &a}}
	text := strings.Join(strings.Fields(explain.Explain(d, clitest.Noon).String()), " ")
	want := "batch steps of 76 in plan 7: predicted to make the most [MostProgress] STEP PASSES TIME EFFICIENCY PROGRESS/S 64 1 x 64 2.5 s 100 % 10 76 1 x 76 3.5 s 95 % 10.3 chosen"
	if !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
	a.BatchChoice, a.Batch, d.Plan.Policy = nil, train.Batch{}, "fifo"
	if text := explain.Explain(d, clitest.Noon).String(); !strings.Contains(text, "steps of 64, as submitted: plan 7 by fifo chose none") {
		t.Error(text)
	}
}
