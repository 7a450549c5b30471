package sim

import (
	"math"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

// TestCodeThatStopsAtStepsFinishesNoEpoch: asked to leave, a job whose code can stop after any step leaves after its
// step, saves it, and goes on from there.
func TestCodeThatStopsAtStepsFinishesNoEpoch(t *testing.T) {
	job := recorded(3, 1, 10)
	job.LeavesAtSteps = true
	c := live(plan.FIFO{}, liveNodes(2), Arrival{Name: "a", Source: job})
	// Nobody says which device it gets first: both are gone for a while, one after the other.
	c.Absences = []Absence{away("lab0", "gpu:0", 5.25, 15), away("lab0", "gpu:1", math.Inf(-1), 5)}
	var second train.Attempt
	c.Show = func(r records.Records) {
		if a := r.Attempts["a"]; a.Number == 2 && second.Number == 0 {
			second = a
		}
	}
	got, err := Run(c)
	if err != nil || got.Starts["a"] != 2 || math.Abs(got.JCTs["a"]-30.5) > 1.01 {
		t.Fatalf("%d starts, completion time %v s: %v", got.Starts["a"], got.JCTs["a"], err)
	}
	began := second.StartedAt.Sub(at(0)).Seconds()
	// A step takes 0.1 s, and it began at 0.5 s. Decisions come every 0.5 s.
	if began > 6.5 || second.StartedEpochs != 0 || second.StartedStep < 50 || second.StartedStep > 51 {
		t.Errorf("it went on at %v s from epoch %d, step %d", began, second.StartedEpochs, second.StartedStep)
	}
}

// TestALostNodeTakesNoSavedStep: what was saved within an epoch outlives the next attempt.
func TestALostNodeTakesNoSavedStep(t *testing.T) {
	saved := position{epoch: 1, epochSteps: 40, progress: 1.4}
	for _, c := range []struct{ started, now, want position }{
		{position{}, position{epoch: 0, epochSteps: 3, progress: 0.03}, position{}},
		{saved, position{epoch: 1, epochSteps: 70, progress: 1.7}, saved},
		{saved, position{epoch: 2, epochSteps: 5, progress: 2.05}, position{epoch: 2, progress: 2}},
	} {
		j := &job{training: newRecordedTraining(recorded(4, 1, 10)), started: c.started, position: c.now}
		if j.lose(); j.position != c.want {
			t.Errorf("from %+v at %+v: goes on from %+v, want %+v", c.started, c.now, j.position, c.want)
		}
	}
}

// TestASizeIsTriedOnce: a job that can leave after any step is put on other sizes to learn how fast it is there. It
// stays on each until that is known, and no size over several nodes is tried: its step time is not used.
func TestASizeIsTriedOnce(t *testing.T) {
	for _, s := range []struct {
		nodes []int
		least int
	}{{[]int{4}, 1}, {[]int{2, 2}, 1}, {[]int{1, 1, 1, 1}, 2}} {
		job := recorded(500, 4, 10, 6)
		job.LeavesAtSteps, job.StartSeconds, job.Spec.Launch, job.Spec.MinDevices = true, 1, train.LaunchPerDevice, s.least
		nodes := liveNodes(s.nodes...)
		for i := range nodes {
			nodes[i].Machine = "lab" // one executor serves all
		}
		c := live(plan.Optimus{}, nodes, Arrival{Name: "a", Source: job})
		c.State.Tuning = plan.Tuning{AtEpochs: true, RestartSeconds: 1, MinRescaleSeconds: 0.1, MaxRestartsPerHour: 1000}
		got, err := Run(c)
		if err != nil || got.Completed != 1 || got.Starts["a"] > 6 {
			t.Errorf("nodes of %v devices: %d starts, completion time %v s: %v", s.nodes, got.Starts["a"], got.JCTs["a"], err)
		}
	}
}
