package nodeagent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestOldReportsAreDeleted(t *testing.T) {
	server := bustest.Start(t)
	tables, err := openTables(within(t), bustest.Connect(t, server, "test"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	jobs := map[train.JobID]train.Job{
		"old":     {ID: "old", State: train.StateSucceeded, FinishedAt: now.Add(-2 * time.Hour)},
		"recent":  {ID: "recent", State: train.StateFailed, FinishedAt: now.Add(-time.Minute)},
		"running": {ID: "running", State: train.StateRunning},
	}
	for id, j := range jobs {
		if _, err := tables.jobs.Swap(within(t), string(id), j, 0); err != nil {
			t.Fatal(err)
		}
	}
	keys := []string{"old.1", "old.2", "recent.1", "running.1", "unknown.1"}
	for _, key := range keys {
		if _, err := tables.reports.Swap(within(t), key, train.AttemptReport{Spoke: true}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := sweepReports(within(t), tables, now); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range keys {
		_, err := tables.reports.Get(within(t), key)
		if gone := errors.Is(err, bus.ErrNotFound); gone != (key == "old.1" || key == "old.2") {
			t.Errorf("%s: gone %v, error %v", key, gone, err)
		}
	}
	// The service sweeps at its start.
	if _, err := tables.reports.Swap(within(t), "old.3", train.AttemptReport{Spoke: true}, 0); err != nil {
		t.Fatal(err)
	}
	stop := start(t, server.URL(), t.TempDir())
	defer stop()
	watching, end := context.WithCancel(within(t))
	defer end()
	gone := false
	_ = tables.reports.Watch(watching, func(e bus.Entry[train.AttemptReport], deleted bool) {
		if e.Key == "old.3" && deleted {
			gone = true
			end()
		}
	}, nil)
	if !gone {
		t.Error("the service did not delete an old report")
	}
}
