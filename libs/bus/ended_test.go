package bus_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestRecordsOfEndedJobsAreForgotten(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	b := bustest.Connect(t, bustest.Start(t), "x")
	jobs, err := bus.OpenKV(ctx, b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	reports, err := bus.OpenKV(ctx, b, contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	hoursAgo := time.Now().Add(-2 * time.Hour)
	for _, j := range []train.Job{
		{ID: "recent", State: train.StateFailed, FinishedAt: time.Now().Add(-time.Minute)},
		{ID: "running", State: train.StateRunning, FinishedAt: hoursAgo},
		{ID: "old", State: train.StateSucceeded, FinishedAt: hoursAgo},
	} {
		if _, err := jobs.Swap(ctx, string(j.ID), j, 0); err != nil {
			t.Fatal(err)
		}
	}
	stay := []string{"recent.1", "running.1", "unknown.1"}
	for _, key := range append(stay, "old.1", "old.2") { // the sweep visits them in this order
		job, number, _ := strings.Cut(key, ".")
		attempt, _ := strconv.Atoi(number)
		if _, err := reports.Swap(ctx, key, train.AttemptReport{Job: train.JobID(job), Attempt: attempt}, 0); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		_ = bus.ForgetEnded(ctx, reports, jobs)
	}()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	err = reports.Watch(watching, func(e bus.Entry[train.AttemptReport], deleted bool) {
		if e.Key == "old.2" && deleted {
			stop()
		}
	}, nil)
	if err != nil || ctx.Err() != nil {
		t.Fatalf("%v: the last old record is still there", errors.Join(err, ctx.Err()))
	}
	left, err := reports.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range left {
		if len(left) != len(stay) || e.Key != stay[i] {
			t.Fatalf("%+v are left, want %v", left, stay)
		}
	}
}
