package jobapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// largeEpoch is the report of an epoch that takes some 50 KB when stored.
func largeEpoch(epoch int) string {
	metrics := map[string]int{}
	for i := range maxMetrics {
		metrics[strings.Repeat("<", maxMetricName-2)+fmt.Sprintf("%02d", i)] = epoch
	}
	data, _ := json.Marshal(map[string]any{"epochs_done": epoch, "metrics": metrics})
	return strings.ReplaceAll(string(data), `\u003c`, "<")
}

func TestAnAttemptStoresSoMuchAndItsLastEpoch(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.put(attempt(1))
	const epochs = 110
	before := b.stored(event.StreamJobs)
	for i := range epochs {
		b.want(http.MethodPost, "/attempt/t0k3n1/v1/jobs/job-1/epochs", largeEpoch(i+1), 200, `{}`)
	}
	usage, err := b.bus.UsageOf(within(t), event.StreamJobs)
	if err != nil || usage.Bytes < storedAtOnce/2 || usage.Bytes > storedAtOnce+storedAtOnce/8 {
		t.Errorf("%+v, error %v: want some %d bytes", usage, err, storedAtOnce)
	}
	if r := b.report(1); r.EpochsDone != epochs {
		t.Errorf("%d epochs are counted, want %d", r.EpochsDone, epochs)
	}
	n := int(b.stored(event.StreamJobs) - before)
	if n >= epochs {
		t.Fatalf("%d facts of %d epochs", n, epochs)
	}
	for range 3 { // the first end stores the last epoch, others nothing
		b.want(http.MethodPost, "/attempt/t0k3n1/v1/jobs/job-1/end", `{"outcome":"finished"}`, 200, `{}`)
		b.want(http.MethodPost, "/attempt/t0k3n1/v1/jobs/job-1/epochs", largeEpoch(epochs+1), 200, `{}`)
	}
	if now := int(b.stored(event.StreamJobs) - before); now != n+1 {
		t.Errorf("%d facts, want %d", now, n+1)
	}
	all := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, n+1)
	if last := all[n]; last.EpochsDone != epochs || len(last.Metrics) != maxMetrics {
		t.Errorf("the last epoch is %d with %d metrics", last.EpochsDone, len(last.Metrics))
	}
}

// While JOBS is almost full it stores no epochs and no checkpoints, but their counts; the newest are stored once there
// is room, or written to disk when the agent stops.
func TestTheRestOfJobsIsLeftToOthers(t *testing.T) {
	s := bustest.Start(t)
	b := newBench(t, s)
	b.put(attempt(1))
	b.want(http.MethodPost, "/attempt/t0k3n1/v1/jobs/job-1/epochs", `{"epochs_done":1}`, 200, `{}`)
	resize := func(most int64) {
		t.Helper()
		js := bustest.JetStream(t, s.URL())
		stream, err := js.Stream(within(t), event.StreamJobs)
		if err != nil {
			t.Fatal(err)
		}
		c := stream.CachedInfo().Config
		c.MaxBytes = most
		if _, err := js.UpdateStream(within(t), c); err != nil {
			t.Fatal(err)
		}
		b.api.askFill(within(t))
	}
	usage, err := b.bus.UsageOf(within(t), event.StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	resize(usage.Bytes + usage.Bytes/10)
	stored := b.stored(event.StreamJobs)
	for i := range 5 {
		b.want(http.MethodPost, "/attempt/t0k3n1/v1/jobs/job-1/epochs", fmt.Sprintf(`{"epochs_done":%d}`, i+2), 200, `{}`)
		b.want(http.MethodPost, "/attempt/t0k3n1/v1/jobs/job-1/checkpoints", fmt.Sprintf(`{"epochs_done":%d,"path":"c%d"}`, i+2, i+2), 200, `{}`)
	}
	if now := b.stored(event.StreamJobs); now != stored {
		t.Errorf("%d facts were stored", now-stored)
	}
	if r := b.report(1); r.EpochsDone != 6 || r.Checkpoint != "c6" {
		t.Errorf("%+v", r)
	}
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.api.RunHeld(stopped); err != nil || b.box.Len() != 2 {
		t.Errorf("%d facts on disk, want 2, error %v", b.box.Len(), err)
	}
	b.want(http.MethodPost, "/attempt/t0k3n1/v1/jobs/job-1/epochs", `{"epochs_done":7}`, 200, `{}`)
	resize(1 << 30)
	b.background()
	ctx, cancel := context.WithCancel(within(t))
	var running conc.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = b.api.RunHeld(ctx) })
	all := facts[event.EpochEnded](b, event.StreamJobs, event.FactEpochEnded, 3)
	if all[1].EpochsDone != 6 || all[2].EpochsDone != 7 {
		t.Errorf("%+v", all)
	}
	if c := facts[event.CheckpointWritten](b, event.StreamJobs, event.FactCheckpointWritten, 1); c[0].Path != "c6" {
		t.Errorf("%+v", c)
	}
}
