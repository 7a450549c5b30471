package curve_test

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/curve"
)

func TestStraggler(t *testing.T) {
	pace := func(rank int, step, wait float64) curve.WorkerPace {
		return curve.WorkerPace{Rank: rank, StepSeconds: step, WaitSeconds: wait, Steps: 50}
	}
	few := pace(2, 1, 0)
	few.Steps = curve.MinStragglerSteps - 1
	for _, c := range []struct {
		name  string
		paces []curve.WorkerPace
		async bool
		rank  int // below zero: none
		slow  float64
	}{
		{"all alike", []curve.WorkerPace{pace(0, 1, 0.1), pace(1, 1, 0.12), pace(2, 1, 0.09)}, false, -1, 0},
		{"the one that waits least is late", []curve.WorkerPace{pace(0, 1, 0.5), pace(1, 1, 0.5), pace(2, 1, 0)}, false, 2, 2},
		{"a little late", []curve.WorkerPace{pace(0, 1, 0.3), pace(1, 1, 0.3), pace(2, 1, 0)}, false, -1, 0},
		{"asynchronous, below half the speed", []curve.WorkerPace{pace(0, 1, 0), pace(1, 2.1, 0), pace(2, 1, 0), pace(3, 1, 0)}, true, 1, 2.1},
		{"asynchronous, above half", []curve.WorkerPace{pace(0, 1, 0), pace(1, 1.9, 0), pace(2, 1, 0)}, true, -1, 0},
		{"a fast one is none", []curve.WorkerPace{pace(0, 1, 0), pace(1, 0.1, 0), pace(2, 1, 0)}, true, -1, 0},
		{"two cannot be compared", []curve.WorkerPace{pace(0, 1, 0), pace(1, 9, 0)}, true, -1, 0},
		{"too few steps", []curve.WorkerPace{pace(0, 9, 0), pace(1, 1, 0), few}, true, -1, 0},
		{"nonsense", []curve.WorkerPace{pace(0, 9, 0), pace(1, 1, 2), pace(2, 1, 0)}, false, -1, 0},
	} {
		rank, slow, found := curve.Straggler(c.paces, c.async)
		if found != (c.rank >= 0) || found && (rank != c.rank || slow != c.slow) {
			t.Errorf("%s: rank %d, %.2f times, %v", c.name, rank, slow, found)
		}
	}
}
