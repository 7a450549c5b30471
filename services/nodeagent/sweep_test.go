package nodeagent

import (
	"context"
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
	old := train.Job{ID: "old", State: train.StateSucceeded, FinishedAt: time.Now().Add(-2 * time.Hour)}
	if _, err := tables.jobs.Swap(within(t), "old", old, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := tables.reports.Swap(within(t), "old.3", train.AttemptReport{Job: "old", Attempt: 3, Spoke: true}, 0); err != nil {
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
