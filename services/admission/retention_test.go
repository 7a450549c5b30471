package admission

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestOldRecordsGo(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	const day = 24 * time.Hour
	r := &retention{jobs: b.jobs, log: slog.New(slog.DiscardHandler), keep: 90 * day, old: map[string]uint64{}}
	for id, j := range map[train.JobID]train.Job{
		"old": {State: train.StateSucceeded, FinishedAt: now.Add(-91 * day)}, "young": {State: train.StateFailed, FinishedAt: now.Add(-89 * day)},
		"runs": {State: train.StateRunning}, "refused": {State: train.StateRejected, FinishedAt: now.Add(-99 * day)}, "changed": {State: train.StateCancelled, FinishedAt: now.Add(-99 * day)},
	} {
		j.ID = id
		revision, err := b.jobs.Swap(b.ctx, string(id), j, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.observe(now, bus.Entry[*train.Job]{Key: string(id), Value: &j, Revision: revision}, false)
		if id == "changed" {
			if _, err := b.jobs.Swap(b.ctx, string(id), j, revision); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.sweep(b.ctx); err != nil {
		t.Fatal(err)
	}
	left, err := b.jobs.List(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range left {
		ids = append(ids, e.Key)
	}
	if len(ids) != 3 || strings.Contains(strings.Join(ids, " "), "old") || strings.Contains(strings.Join(ids, " "), "refused") {
		t.Errorf("left are %v, want young, runs and changed", ids)
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
	if deleted, err := r.sweepUploadsOnce(b.ctx, b.bus, now); err != nil || deleted != 2 {
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
