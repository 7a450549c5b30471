package policy

import (
	"math"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// sweepJob leaves its batch to the planner. It has measured the given steps, each on one device.
func sweepJob(id train.JobID, rate string, steps map[int]float64) state.Job {
	j := state.Job{ID: id, Priority: 50, Spec: train.Spec{
		Name: "x", Command: []string{"train.py", "--lr", rate}, BatchSize: 64, GlobalBatchSize: 32, TrainingSetSize: 10000, MaxEpochs: 10, MaxDevices: 4,
		AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 512},
	}.WithDefaults()}
	if steps == nil {
		return j
	}
	j.Model = &train.Model{Efficiency: &train.Efficiency{Variance: 3, Square: 1, BaseBatch: 32}}
	for batch, seconds := range steps {
		j.Model.Ran = append(j.Model.Ran, train.Ran{Config: train.Config{Workers: 1, Nodes: 1, LocalBatch: batch}, Device: "t4", StepSeconds: seconds})
	}
	return j
}

func curvesOf(jobs ...state.Job) []*speedCurve {
	s := &state.State{Now: time.Unix(0, 0), Jobs: jobs, Nodes: []train.Node{{ID: "n", Devices: []train.Device{{ID: "gpu:0", Model: "t4"}}}}}
	r := &Round{Snapshot: cluster.New(s, Switchyard{}.Bounds)}
	b := recall(r)
	curves := make([]*speedCurve, len(jobs))
	for _, g := range r.Snapshot.Gangs {
		for i := range jobs {
			if jobs[i].ID == g.ID {
				curves[i] = b.curve(g, "t4")
			}
		}
	}
	return curves
}

// The trials of a sweep share what they measure, and a trial whose steps take longer is not taken for another.
func TestASweepSharesItsCurve(t *testing.T) {
	steps := map[int]float64{8: 0.1, 16: 0.15, 32: 0.25, 64: 0.45}
	at := func(c *speedCurve, batch int) float64 { return c.seconds(1, 1, train.Batch{LocalBatch: batch}) }
	curves := curvesOf(sweepJob("a", "0.1", steps), sweepJob("new", "0.2", nil), sweepJob("slow", "0.3", map[int]float64{32: 0.5}))
	for batch, want := range steps {
		if got := at(curves[1], batch); math.Abs(got/want-1) > 0.1 {
			t.Errorf("batch %d: %v s predicted for a new trial, want about %v", batch, got, want)
		}
		if got := at(curves[2], batch); math.Abs(got/want/2-1) > 0.15 {
			t.Errorf("batch %d: %v s predicted for a trial with slow steps, want about %v", batch, got, 2*want)
		}
		if got := at(curves[0], batch); math.Abs(got/want-1) > 0.1 {
			t.Errorf("batch %d: %v s predicted where the trial itself took %v", batch, got, want)
		}
	}
	if len(curves[1].noise) == 0 {
		t.Error("a new trial does not have the gradient noise of the others")
	}
}

func TestNoiseCountsForTheBatchOfItsReader(t *testing.T) {
	noise := []train.Efficiency{{Variance: 6, Square: 1, BaseBatch: 32}, {}}
	got := rebased(noise, 64)
	if got[0] != (train.Efficiency{Variance: 3, Square: 1, BaseBatch: 64}) || got[1] != (train.Efficiency{}) || noise[0].Variance != 6 {
		t.Errorf("%+v", got)
	}
}
