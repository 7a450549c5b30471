package diff_test

import (
	"math"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

func TestAnExitWaitsForReportsThatItOvertook(t *testing.T) {
	exit := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return exit.Add(time.Duration(seconds * float64(time.Second))) }
	seen := func(seconds float64, waiting int) train.Node {
		return train.Node{SeenAt: at(seconds), ReportsWaiting: waiting}
	}
	tests := []struct {
		name   string
		report train.AttemptReport
		asked  int
		agent  train.Node
		want   int
	}{
		{"the agent was not seen since", train.AttemptReport{EpochsDone: 4}, 6, seen(-1, 0), math.MaxInt},
		{"nothing has arrived at all", train.AttemptReport{}, 6, seen(-1, 0), math.MaxInt},
		{"what the agent held is of old", train.AttemptReport{}, 6, seen(-1, 2), math.MaxInt},
		{"the agent holds reports", train.AttemptReport{EpochsDone: 4}, 6, seen(1, 2), 2},
		{"it does so long after the exit", train.AttemptReport{EpochsDone: 4}, 6, seen(600, 300), 300},
		{"the agent holds none", train.AttemptReport{EpochsDone: 4}, 6, seen(1, 0), 0},
		{"all epochs have arrived", train.AttemptReport{EpochsDone: 6}, 6, seen(-1, 3), 0},
		{"its end has arrived", train.AttemptReport{EpochsDone: 4, Ended: "stopped"}, 6, seen(-1, 0), 0},
		{"no epochs are asked for", train.AttemptReport{}, 0, seen(-1, 0), 0},
		{"there is no agent", train.AttemptReport{EpochsDone: 4}, 6, train.Node{}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job := train.Job{Spec: train.Spec{MaxEpochs: tt.asked}}
			if got := diff.ReportsDue(train.Attempt{ExitedAt: exit}, tt.report, job, tt.agent); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

// An agent may take minutes for what code has left, or to store what it holds: an end waits while that falls.
func TestAnEndWaitsWhileReportsArrive(t *testing.T) {
	begun := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var w diff.Wait
	for _, look := range []struct {
		second, left int
		over         bool
	}{{0, 300, false}, {14, 300, false}, {14, 299, false}, {28, 299, false}, {28, 400, false}, {29, 400, true}, {29, 298, false}, {44, 298, true}} {
		now := begun.Add(time.Duration(look.second) * time.Second)
		if w = w.Next(look.left, now); w.Over(now) != look.over {
			t.Errorf("over with %d reports after %d s: %t", look.left, look.second, !look.over)
		}
	}
}
