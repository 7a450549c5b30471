package bus_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A watcher of some keys lists them again if a change of theirs did not come, and not because others have changed.
func TestAWatcherOfSomeKeysMissesTheirChangesOnly(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "x")
	kv, err := bus.OpenKV(within(t), b, contract.Reports)
	if err != nil {
		t.Fatal(err)
	}
	var revisions []uint64
	for _, report := range []train.AttemptReport{{Job: "a", Attempt: 1}, {Job: "b", Attempt: 1}, {Job: "a", Attempt: 2}, {Job: "b", Attempt: 2}} {
		revision, err := kv.Swap(within(t), contract.ReportKey(report.Job, report.Attempt), report, 0)
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, revision)
	}
	all, ofA, last := []string(nil), revisions[2], revisions[3]
	for name, tc := range map[string]struct {
		seen     uint64
		patterns []string
		want     bool
	}{
		"all came":                 {last, all, false},
		"others have changed":      {ofA, []string{"a.*"}, false},
		"no such key":              {ofA, []string{"a.2", "c.*"}, false},
		"none is listed yet":       {0, []string{"b.*"}, false},
		"one did not come":         {ofA, all, true},
		"one of some did not come": {ofA, []string{"b.*"}, true},
		"of several patterns":      {ofA, []string{"a.*", "b.2"}, true},
		"the bucket was made anew": {last + 1, []string{"a.*"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := within(t)
			if !tc.want { // it looks until then
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			var seen atomic.Uint64
			seen.Store(tc.seen)
			if got := kv.Misses(ctx, time.Millisecond, &seen, tc.patterns...); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
