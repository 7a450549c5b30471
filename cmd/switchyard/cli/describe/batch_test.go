package describe

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestDescribeShowsTheBatchOfEachEpoch: with a noise scale of 64 samples, steps four times as large as 64 make
// (1+1)/(1/4+1) times the progress for four times the samples.
func TestDescribeShowsTheBatchOfEachEpoch(t *testing.T) {
	epochs := []event.EpochEnded{
		{EpochsDone: 1, Devices: 1, Batch: train.Batch{Samples: 64, LocalBatch: 64}},
		{EpochsDone: 2, Devices: 3, Batch: train.Batch{Samples: 256, LocalBatch: 43, Accumulation: 1}, GradSquared: new(2.0), GradVariance: new(128.0)},
	}
	d := description{Job: train.Job{ID: "x", State: train.StateRunning, Spec: train.Spec{BatchSize: 64, GlobalBatchSize: 64}}}
	for _, e := range epochs {
		d.Batches = append(d.Batches, batchOf(e, 64))
	}
	text := strings.Join(strings.Fields(describeText(d, clitest.Noon)), " ")
	if want := "EPOCH DEVICES STEP PASSES EFFICIENCY 1 1 64 1 x 64 - 2 3 256 2 x 43 40 %"; !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
}
