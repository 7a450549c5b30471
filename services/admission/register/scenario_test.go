package register

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestLives folds the facts of testdata/lives and prints what a person sees after each. A command is the name of a fact
// with at=<seconds> since nine o'clock and its body as JSON below; `show` prints the counters; `history` the history;
// `repeat` folds the last fact again. Rewrite with go test ./services/admission/register -rewrite.
func TestLives(t *testing.T) {
	datadriven.Walk(t, "testdata/lives", func(t *testing.T, path string) {
		l := life{job: train.Job{ID: "resnet"}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return l.run(t, d) })
	})
}

type life struct {
	job  train.Job
	last Fact
}

func (l *life) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "show":
		return l.counters()
	case "history":
		var b strings.Builder
		for _, c := range l.job.History {
			fmt.Fprintf(&b, "%s %-16s %-10s attempt %d, %d epochs [%s] %s\n",
				c.At.Format("15:04:05"), c.Fact, c.State, c.Attempt, c.Epochs, train.JoinDevices(c.Devices), c.Reason)
		}
		return b.String()
	case "repeat":
		return l.fold()
	}
	kind, ok := event.Find(event.JobSubject("resnet", d.Cmd))
	if !ok {
		t.Fatalf("%s: no fact %q", d.Pos, d.Cmd)
	}
	body := kind.New()
	if d.Input != "" {
		if err := json.Unmarshal([]byte(d.Input), body); err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
	}
	at := 0
	for _, a := range d.CmdArgs {
		if n, err := strconv.Atoi(a.Vals[0]); a.Key == "at" && err == nil {
			at = n
		}
	}
	l.last = Fact{Name: d.Cmd, Time: epoch0().Add(time.Duration(at) * time.Second), Sequence: l.last.Sequence + 1, Body: body}
	return l.fold()
}

func (l *life) fold() string {
	next, err := Fold(l.job, l.last)
	switch {
	case errors.Is(err, ErrIllegal):
		return "cannot be: " + err.Error() + "\n"
	case err != nil:
		return err.Error() + "\n"
	case next.LastSequence == l.job.LastSequence:
		return "nothing changes\n"
	}
	l.job = next
	s := fmt.Sprintf("%s since %s: %s: %s\n", next.State, next.Since.Format("15:04:05"), next.Reason, next.Message)
	if next.Hint != "" {
		s += "hint: " + next.Hint + "\n"
	}
	for _, b := range next.Blockers {
		s += "blocker: " + b.String() + "\n"
	}
	return s
}

func (l *life) counters() string {
	j := l.job
	s := fmt.Sprintf("attempt %d, %d epochs, %d restarts, %d rescales, %d preemptions, %d recoveries, ran %v s, devices [%s]\n",
		j.Attempt, j.EpochsDone, j.Restarts, j.Rescales, j.Preemptions, j.Recoveries, j.RunSeconds, train.JoinDevices(j.Devices))
	if j.EpochStep > 0 {
		s += fmt.Sprintf("%d of %d steps of the next epoch\n", j.EpochStep, j.EpochSteps)
	}
	if !j.PredictedFinish.IsZero() {
		s += fmt.Sprintf("finish predicted for %s", j.PredictedFinish.Format("15:04:05"))
		if !j.FirstPredictedFinish.IsZero() {
			s += fmt.Sprintf(", at first for %s", j.FirstPredictedFinish.Format("15:04:05"))
		}
		s += "\n"
	}
	if j.EstimateSeconds > 0 {
		s += fmt.Sprintf("estimate %v s, effective priority %d\n", j.EstimateSeconds, j.EffectivePriority())
	}
	for _, w := range j.Warnings {
		s += "warning: " + w + "\n"
	}
	return s
}
