package profiler

import (
	"context"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestOldModelsAreDeleted(t *testing.T) {
	b := newBench(t)
	jobs, err := bus.OpenKV(b.ctx, b.bus, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	old := train.Job{ID: "old", State: train.StateSucceeded, FinishedAt: time.Now().Add(-2 * time.Hour)}
	if _, err := jobs.Swap(b.ctx, "old", old, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.models.Swap(b.ctx, "old", train.Model{Job: "old"}, 0); err != nil {
		t.Fatal(err)
	}
	b.serve()
	watching, stop := context.WithCancel(b.ctx)
	defer stop()
	gone := false
	_ = b.models.Watch(watching, func(e bus.Entry[train.Model], deleted bool) {
		if e.Key == "old" && deleted {
			gone = true
			stop()
		}
	}, nil)
	if !gone {
		t.Error("the service did not delete an old model")
	}
}
