package admission

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const day = 24 * time.Hour

// put stores the records of jobs.
func put(b *bench, jobs ...train.Job) {
	b.t.Helper()
	for _, j := range jobs {
		if _, err := b.jobs.Swap(b.ctx, string(j.ID), j, 0); err != nil {
			b.t.Fatal(err)
		}
	}
}

// left returns the ids of the jobs with a record, sorted.
func left(b *bench) string {
	b.t.Helper()
	entries, err := b.jobs.List(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.Key
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func TestOldRecordsGo(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	r := &retention{jobs: b.jobs, log: slog.New(slog.DiscardHandler), keep: 90 * day}
	changed := train.Job{ID: "changed", State: train.StateCancelled, FinishedAt: now.Add(-99 * day)}
	put(b, changed,
		train.Job{ID: "old", State: train.StateSucceeded, FinishedAt: now.Add(-91 * day)}, train.Job{ID: "refused", State: train.StateRejected, FinishedAt: now.Add(-99 * day)},
		train.Job{ID: "runs", State: train.StateRunning}, train.Job{ID: "young", State: train.StateFailed, FinishedAt: now.Add(-89 * day)})
	old, err := r.old(b.ctx, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.jobs.Swap(b.ctx, "changed", changed, old["changed"]); err != nil {
		t.Fatal(err)
	}
	if n, err := r.delete(b.ctx, old); n != 2 || err != nil {
		t.Errorf("deleted %d, %v", n, err)
	}
	if got := left(b); got != "changed runs young" {
		t.Errorf("left are %s", got)
	}
}

// Admission may run for months: nothing happens to a record when its time comes.
func TestARecordGoesWhenItsTimeComes(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	put(b, train.Job{ID: "a", State: train.StateSucceeded, FinishedAt: now})
	for _, tc := range []struct {
		keep time.Duration
		now  time.Time
		want string
	}{{90 * day, now, "a"}, {90 * day, now.Add(90 * day), "a"}, {0, now.Add(900 * day), "a"}, {90 * day, now.Add(91 * day), ""}} {
		r := &retention{jobs: b.jobs, log: slog.New(slog.DiscardHandler), keep: tc.keep}
		if _, err := r.sweepRecords(b.ctx, tc.now); err != nil {
			t.Fatal(err)
		}
		if got := left(b); got != tc.want {
			t.Errorf("after %s, kept for %s, left are %q, want %q", tc.now.Sub(now), tc.keep, got, tc.want)
		}
	}
}

func TestAllOldRecordsGo(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	const n = 2*mostOld + 1
	filling := pool.New().WithMaxGoroutines(64).WithContext(b.ctx)
	for i := range n {
		filling.Go(func(ctx context.Context) error {
			j := train.Job{ID: train.JobID(fmt.Sprint("j", i)), State: train.StateSucceeded, FinishedAt: now.Add(-99 * day)}
			_, err := b.jobs.Swap(ctx, string(j.ID), j, 0)
			return err
		})
	}
	if err := filling.Wait(); err != nil {
		t.Fatal(err)
	}
	r := &retention{jobs: b.jobs, log: slog.New(slog.DiscardHandler), keep: 90 * day}
	if deleted, err := r.sweepRecords(b.ctx, now); deleted != n || err != nil {
		t.Errorf("deleted %d of %d, %v", deleted, n, err)
	}
	if got := left(b); got != "" {
		t.Errorf("left are %s", got)
	}
}

// An uploaded folder stays while a job that needs it has not ended, or ended not long ago.
func TestUploadsThatNoJobNeedsGo(t *testing.T) {
	b := newBench(t)
	now := time.Now().Add(2 * bus.UploadKept) // the uploads are old by then
	for id, j := range map[train.JobID]train.Job{
		"waits": {State: train.StateQueued}, "ended": {State: train.StateFailed, FinishedAt: now.Add(-keepUploads / 2)}, "old": {State: train.StateFailed, FinishedAt: now.Add(-2 * keepUploads)},
	} {
		j.ID, j.Spec.Upload = id, "of-"+string(id)
		if _, err := b.jobs.Swap(b.ctx, string(id), j, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, hash := range []string{"of-waits", "of-ended", "of-old", "of-nobody"} {
		if _, err := b.bus.PutUpload(b.ctx, "", hash, strings.NewReader(hash)); err != nil {
			t.Fatal(err)
		}
	}
	r := &retention{jobs: b.jobs, log: slog.New(slog.DiscardHandler)}
	if deleted, err := r.sweepUploads(b.ctx, b.bus, now); err != nil || deleted != 2 {
		t.Errorf("deleted %d, %v, want those of old and of nobody", deleted, err)
	}
	for hash, want := range map[string]bool{"of-waits": true, "of-ended": true, "of-old": false, "of-nobody": false} {
		if err := b.bus.GetUpload(b.ctx, "", hash, func(io.Reader) error { return nil }); (err == nil) != want {
			t.Errorf("%s: %v", hash, err)
		}
	}
}

func TestRecordsOutliveFacts(t *testing.T) {
	for keep, fine := range map[time.Duration]bool{0: true, time.Hour: false, -time.Hour: false, 30 * 24 * time.Hour: true} {
		if _, err := settings.Of("--keep-records", keep.String()); (err == nil) != fine {
			t.Errorf("--keep-records %s: %v", keep, err)
		}
	}
}

func TestTheAlarmRingsOnceEachTime(t *testing.T) {
	var out bytes.Buffer
	a := &fillAlarm{log: slog.New(slog.NewTextHandler(&out, nil)), meters: newMeters(nil), warned: map[string]bool{}}
	for _, share := range []int64{79, 80, 95, 10, 81} {
		a.check([]bus.Usage{{Name: "JOBS", Bytes: share, MaxBytes: 100, Refuses: true}, {Name: "SAMPLES", Bytes: 99, MaxBytes: 100}})
	}
	if n := strings.Count(out.String(), "almost full"); n != 2 || strings.Contains(out.String(), "SAMPLES") {
		t.Errorf("rang %d times: %s", n, out.String())
	}
	if got := testutil.ToFloat64(a.meters.fill.WithLabelValues("JOBS")); got != 0.81 {
		t.Errorf("metric %v", got)
	}
}
