package jobs

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// The line is below the output, is never drawn within a line of it, and is gone at the end.
func TestTheProgressLineStaysBelowTheOutput(t *testing.T) {
	var screen bytes.Buffer
	line := &progressLine{terminal: &screen, columns: 12}
	out := aboveLine{line, &screen}
	fmt.Fprint(out, "one\n")
	line.set("running 1s")
	fmt.Fprint(out, "two\n")
	fmt.Fprint(out, "thr")
	line.set("running 2s, and more than fits")
	fmt.Fprint(out, "ee\n")
	line.set("")
	const gone = "\r\x1b[K"
	want := "one\n" + "running 1s" + gone + "two\n" + "running 1s" + gone + "thr" + "ee\n" + "running 2.." + gone
	if got := screen.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTheProgressLineSaysHowFarAJobIs(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	in := func(d time.Duration) *train.Moment {
		at := now.Add(d)
		return &train.Moment{Low: at, Expected: at, High: at}
	}
	for want, r := range map[string]view.Standing{
		"a: running 12s, 1 device": {Job: train.Job{ID: "a", State: train.StateRunning, RunSeconds: 12.7, Devices: []train.DeviceID{"cpu:0"}}},
		"a: running 1m00s, epoch 3/10, 2 devices, to go: 2m20s": {
			Job:  train.Job{ID: "a", Spec: train.Spec{MaxEpochs: 10}, State: train.StateRunning, RunSeconds: 60, EpochsDone: 3, Devices: []train.DeviceID{"cpu:0", "cpu:1"}},
			Plan: &view.Plan{Predicted: train.Predicted{Finish: in(140 * time.Second)}},
		},
		"a: queued, starts in 40s, waits for b": {
			Job: train.Job{ID: "a", State: train.StateQueued, Message: "waits for b"}, Plan: &view.Plan{Predicted: train.Predicted{Start: in(40 * time.Second)}},
		},
	} {
		if got := progressText(r, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
