package profiler

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestOldModelsAreDeleted(t *testing.T) {
	b := newBench(t)
	jobs, err := bus.OpenKV[train.Job](b.ctx, b.bus, event.BucketJobs)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]train.Job{
		"old":     {ID: "old", State: train.StateSucceeded, FinishedAt: nine().Add(-2 * time.Hour)},
		"recent":  {ID: "recent", State: train.StateFailed, FinishedAt: nine().Add(-time.Minute)},
		"running": {ID: "running", State: train.StateRunning, FinishedAt: nine().Add(-2 * time.Hour)},
		"unknown": {},
	}
	for key, job := range cases {
		if job.ID != "" {
			if _, err := jobs.Swap(b.ctx, key, job, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.models.Swap(b.ctx, key, train.Model{Job: key}, 0); err != nil {
			t.Fatal(err)
		}
	}
	s := &sweeper{models: b.models, jobs: jobs, log: slog.New(slog.DiscardHandler)}
	for range 2 {
		if err := s.sweep(b.ctx, nine()); err != nil {
			t.Fatal(err)
		}
	}
	for key := range cases {
		_, err := b.models.Get(b.ctx, key)
		if gone := errors.Is(err, bus.ErrNotFound); gone != (key == "old") {
			t.Errorf("%s: gone %v, error %v", key, gone, err)
		}
	}
	// The service sweeps at its start.
	if _, err := jobs.Modify(b.ctx, "recent", func(j *train.Job) (bool, error) { j.FinishedAt = time.Now().Add(-2 * time.Hour); return true, nil }); err != nil {
		t.Fatal(err)
	}
	b.serve()
	watching, stop := context.WithCancel(b.ctx)
	defer stop()
	gone := false
	_ = b.models.Watch(watching, func(e bus.Entry[train.Model], deleted bool) {
		if e.Key == "recent" && deleted {
			gone = true
			stop()
		}
	}, nil)
	if !gone {
		t.Error("the service did not delete an old model")
	}
}
