package tick_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

func TestWorkIsRepeatedUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		var every, after []time.Duration
		for now := range tick.Every(ctx, time.Second) {
			every = append(every, now.Sub(begun))
		}
		if diff := cmp.Diff([]time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, every); diff != "" {
			t.Errorf("Every (-want +got):\n%s", diff)
		}
		begun = time.Now()
		for now := range tick.After(t.Context(), time.Second) {
			if after = append(after, now.Sub(begun)); len(after) == 2 {
				break
			}
		}
		if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second}, after); diff != "" {
			t.Errorf("After (-want +got):\n%s", diff)
		}
	})
}
