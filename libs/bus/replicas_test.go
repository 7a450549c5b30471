package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestALostServerOfThreeLosesNothing: with three replicas facts and records survive the loss of a server, and work goes
// on.
func TestALostServerOfThreeLosesNothing(t *testing.T) {
	t.Parallel()
	servers := bustest.StartCluster(t, 3)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: strings.Join(urls, ","), Name: "admission", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	jobs, err := bus.OpenKV(ctx, b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	persevere := func(what string, f func() error) {
		t.Helper()
		for {
			err := f()
			if err == nil || errors.Is(err, bus.ErrConflict) { // an answer that was lost
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	store := func(id train.JobID) {
		t.Helper()
		fact := event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: train.Spec{Name: string(id)}})
		persevere("publish", func() error { return b.Publish(ctx, fact) })
		persevere("write", func() error {
			_, err := jobs.Swap(ctx, string(id), train.Job{ID: id}, 0)
			return err
		})
	}
	store("before")
	servers[0].Stop()
	store("after")
	for _, id := range []train.JobID{"before", "after"} {
		persevere("read", func() error {
			_, err := b.Last(ctx, event.StreamJobs, event.JobSubject(id, event.FactSubmitted))
			return err
		})
		persevere("read", func() error {
			_, err := jobs.Get(ctx, string(id))
			return err
		})
	}
}
