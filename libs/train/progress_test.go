package train

import (
	"testing"
	"time"
)

func TestProgressCountsSteps(t *testing.T) {
	at := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	beat := func(epoch, done, of, total int) AttemptReport {
		return AttemptReport{EpochsDone: epoch, Spoke: true, Steps: Steps{Epoch: epoch, Done: done, Of: of, Total: total, Seconds: 1, At: at}}
	}
	live := Attempt{Phase: PhaseRunning, Devices: []DeviceID{"gpu:0"}}
	for name, c := range map[string]struct {
		job     Job
		attempt Attempt
		report  AttemptReport
		after   time.Duration
		part    float64
		known   bool
	}{
		"one epoch of a declared size":          {Job{Spec: Spec{BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 1}}, live, beat(0, 10, 0, 10), 0, 0.1, true},
		"one epoch whose code knows its length": {Job{Spec: Spec{MaxEpochs: 1}}, live, beat(0, 10, 40, 10), 0, 0.25, true},
		"within the second of four epochs":      {Job{EpochsDone: 1, Spec: Spec{MaxEpochs: 4}}, live, beat(1, 20, 40, 60), 0, 0.375, true},
		"steps since the heartbeat":             {Job{Spec: Spec{MaxEpochs: 1}}, live, beat(0, 10, 40, 10), 10 * time.Second, 0.5, true},
		"but no more than a report lags behind": {Job{Spec: Spec{MaxEpochs: 1}}, live, beat(0, 10, 100, 10), time.Hour, 0.25, true},
		"steps alone":                           {Job{Spec: Spec{MaxSteps: 200}}, live, beat(0, 50, 0, 50), 0, 0.25, true},
		"steps, in epochs that nobody declared": {Job{EpochsDone: 3, Spec: Spec{MaxSteps: 200}}, live, beat(3, 5, 20, 65), 0, 0.325, true},
		"steps that end within an epoch": {
			Job{EpochsDone: 2, Spec: Spec{BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 9, MaxSteps: 250}}, live, beat(2, 25, 100, 225), 0, 0.9, true,
		},
		"epochs that end before the steps": {
			Job{EpochsDone: 1, Spec: Spec{BatchSize: 10, TrainingSetSize: 1000, MaxEpochs: 2, MaxSteps: 900}}, live, beat(1, 50, 100, 150), 0, 0.75, true,
		},
		"a checkpoint within an epoch, between attempts": {Job{EpochsDone: 1, EpochStep: 10, EpochSteps: 40, Spec: Spec{MaxEpochs: 2}}, Attempt{Phase: PhaseExited}, beat(1, 30, 40, 70), 0, 0.625, true},
		"no steps":               {Job{EpochsDone: 1, Spec: Spec{MaxEpochs: 4}}, live, AttemptReport{EpochsDone: 1}, 0, 0.25, true},
		"nothing is declared":    {Job{}, live, beat(0, 10, 40, 10), 0, 0, false},
		"a command that is over": {Job{State: StateSucceeded}, Attempt{}, AttemptReport{}, 0, 1, true},
	} {
		part, known := c.job.Progress(c.attempt, c.report, at.Add(c.after))
		if known != c.known || part < c.part-1e-9 || part > c.part+1e-9 {
			t.Errorf("%s: %g %t, want %g %t", name, part, known, c.part, c.known)
		}
	}
}
