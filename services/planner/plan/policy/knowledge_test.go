package policy

import (
	"math"
	"slices"
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

// What trainings with other batches have measured tells how the noise differs there, and what the job itself measured
// by how much it differs from them.
func TestNoiseIsPredictedByBatch(t *testing.T) {
	others := []scaleAt{{Batch: 128, Scale: 100}, {Batch: 512, Scale: 300}}
	for batch, want := range map[float64]float64{64: 100, 128: 100, 256: 200, 512: 300, 4096: 300} {
		if got := (noiseCurve{points: others, factor: 1}).at(batch); math.Abs(got-want) > 1e-9 {
			t.Errorf("batch %v: a scale of %v, want %v", batch, got, want)
		}
	}
	c := &speedCurve{noise: make(noiseTable, noiseParts)}
	c.noise[0] = others
	job := sweepJob("a", "0.1", map[int]float64{8: 0.1})
	job.Model.Efficiency = &train.Efficiency{Variance: 200.0 / 32, Square: 1, BaseBatch: 32, Batch: 128}
	g := cluster.New(&state.State{Now: time.Unix(0, 0), Jobs: []state.Job{job}}, Switchyard{}.Bounds).Gangs[0]
	if got := c.noiseOf(g).at(512); math.Abs(got-600) > 1e-9 {
		t.Errorf("a job with twice the noise of the others is predicted %v at a larger batch, want 600", got)
	}
}

func TestNoiseTableKeepsTheNewestOfLikeBatches(t *testing.T) {
	points := []scaleAt{}
	for _, at := range []scaleAt{{512, 300}, {128, 100}, {140, 110}, {2048, 900}} {
		points = withScale(points, at)
	}
	if want := []scaleAt{{140, 110}, {512, 300}, {2048, 900}}; !slices.Equal(points, want) {
		t.Errorf("%v, want %v", points, want)
	}
	spoilt := make(noiseTable, noiseParts)
	spoilt[1], spoilt[2] = []scaleAt{{Batch: 0, Scale: 1}}, points
	if got := spoilt.mended(); got[1] != nil || len(got[2]) != 3 || (noiseTable{nil}).mended() != nil {
		t.Errorf("of a table from outside %v is kept", got[1])
	}
}
