package planner

import (
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

// TestTenStepsTellWhenATrainingEnds: a training of one epoch, or of steps alone, is predicted by its first heartbeat,
// and the prediction follows its steps.
func TestTenStepsTellWhenATrainingEnds(t *testing.T) {
	at := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		spec train.Spec
		of   int // steps of an epoch, as the code reports
	}{
		"one epoch of a declared size":    {train.Spec{BatchSize: 10, TrainingSetSize: 4000, MaxEpochs: 1}, 400},
		"one epoch that the code counts":  {train.Spec{MaxEpochs: 1}, 400},
		"four epochs that it counts":      {train.Spec{MaxEpochs: 4}, 100},
		"steps alone":                     {train.Spec{MaxSteps: 400}, 0},
		"steps, in epochs that it counts": {train.Spec{MaxSteps: 400}, 64},
	} {
		spec := c.spec.WithDefaults()
		learned := learn.New("a", spec, func(train.NodeID, train.DeviceID) train.Device { return train.Device{} })
		learned.Take(at, &event.Started{Attempt: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}})
		r := records.Records{
			Jobs:     slices.Values([]*train.Job{{ID: "a", Spec: spec, State: train.StateRunning, Attempt: 1, SubmittedAt: at}}),
			Nodes:    slices.Values([]train.Node{{ID: "n", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}}}),
			Attempts: map[string]train.Attempt{"a": {Job: "a", Number: 1, Phase: train.PhaseRunning, Node: "n", Devices: []train.DeviceID{"gpu:0"}, StartedAt: at}},
		}
		for _, done := range []int{10, 60} {
			now := at.Add(time.Duration(done) * 2 * time.Second)
			learned.Stepped(now, event.Stepped{Attempt: 1, Step: done, Steps: 10, StepSeconds: 2, Devices: 1})
			r.Models = map[string]train.Model{"a": learned.Model()}
			r.Reports = map[string]train.AttemptReport{"a.1": {Job: "a", Attempt: 1, Spoke: true, Steps: train.Steps{Done: done, Of: c.of, Total: done, Seconds: 2, At: now}}}
			got := plan.Decide(r.State(now, train.Plan{}, false, plan.State{}), plan.Switchyard{})
			if len(got.Allocations) != 1 || got.Allocations[0].Forecast.Finish == nil {
				t.Errorf("%s: no prediction after %d steps: %+v", name, done, got)
				continue
			}
			left, want := got.Allocations[0].Forecast.Finish.Expected, float64(2*(400-done))
			if left < 0.99*want || left > 1.01*want {
				t.Errorf("%s: %.0f s left after %d of 400 steps of 2 s, want %.0f s", name, left, done, want)
			}
		}
	}
}

// TestAJobIsPlannedWithTheBatchThatItRuns: once its code has ended an epoch without the batch of the plan, the job is
// planned with its own batch on each device, and gets no other.
func TestAJobIsPlannedWithTheBatchThatItRuns(t *testing.T) {
	at := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	job := train.Job{ID: "a", Spec: adaptiveJob("a", 4).spec, State: train.StateRunning, SubmittedAt: at, EpochsDone: 1}
	for _, own := range []int{0, 32} {
		job.OwnBatch = own
		learned := learn.New("a", job.Spec, func(train.NodeID, train.DeviceID) train.Device { return train.Device{} })
		learned.Take(at, &event.Started{Attempt: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}})
		learned.Take(at.Add(200*time.Second), &event.EpochEnded{
			Attempt: 1, EpochsDone: 1, EpochSeconds: 200, Steps: 2000, StepSeconds: 0.1, Devices: 1, Batch: train.Batch{LocalBatch: 32}, BatchIgnored: own > 0,
		})
		r := records.Records{
			Jobs: slices.Values([]*train.Job{&job}), Models: map[string]train.Model{"a": learned.Model()},
			Nodes: slices.Values([]train.Node{{ID: "n", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}}}),
		}
		got := plan.Decide(r.State(at.Add(200*time.Second), train.Plan{}, false, plan.State{}), plan.Switchyard{})
		if len(got.Allocations) != 1 {
			t.Fatalf("%+v", got)
		}
		a := got.Allocations[0]
		if (a.Batch.LocalBatch > 0) != (own == 0) {
			t.Errorf("own batch %d: planned with %+v", own, a.Batch)
		}
		if left := a.Forecast.Finish.Expected; own > 0 && (left < 599 || left > 601) {
			t.Errorf("three epochs of 200 s are left, predicted %.0f s", left)
		}
	}
}
