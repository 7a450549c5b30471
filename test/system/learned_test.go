package system

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestASlowWorkerIsReplacedAndACalmJobEnds runs one job of three workers with a slow one on cpu:1, and one that ends
// when its loss is calm. What is learned about both goes through every service.
func TestASlowWorkerIsReplacedAndACalmJobEnds(t *testing.T) {
	c := newCluster(t)
	c.flags = []string{"--cpu-slots", "5", "--policy", "optimus", "--rescale-min-interval", "1s", "--restart-price", "1s", "--refit-interval", "500ms"}
	c.start("up")
	c.connect()
	trainer := filepath.Join(binaries, "gotrainer")
	for id, spec := range map[train.JobID]train.Spec{
		"held": {
			Command: []string{trainer, "-hidden", "64", "-slow-device", "cpu:1", "-slow-by", "30ms"}, MaxEpochs: 100_000, TrainingSetSize: 3000,
			MinDevices: 3, MaxDevices: 3, Strategy: train.StrategyAllReduce, Launch: train.LaunchPerDevice, Priority: new(90),
		},
		"calm": {
			Command: []string{trainer, "-hidden", "32"}, MaxEpochs: 100_000, TrainingSetSize: 3000,
			Stop: &train.StopSpec{LossDecrease: 0.02, Epochs: 3},
		},
	} {
		spec.Name, spec.BatchSize, spec.WorkDir = string(id), 32, c.dir
		if err := c.bus.Publish(c.ctx, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})); err != nil {
			t.Fatal(err)
		}
		// One after the other, so that in any order the job of three has the second device.
		c.await("its start", func(jobs map[train.JobID]train.Job) bool { return jobs[id].State.Active() })
	}
	replaced := func(j train.Job) bool {
		return slices.ContainsFunc(j.History, func(h train.Change) bool { return h.Reason == "ReplacedStraggler" })
	}
	jobs := c.await("both ends", func(jobs map[train.JobID]train.Job) bool {
		held := jobs["held"]
		return jobs["calm"].State == train.StateSucceeded && held.Attempt > 1 && replaced(held) && len(held.Devices) == 3 &&
			!slices.Contains(held.Devices, "cpu:1")
	})
	if calm := jobs["calm"]; calm.ConvergedEpochs < 4 || calm.EpochsDone < calm.ConvergedEpochs || calm.Restarts != 0 || !strings.Contains(calm.Message, "converged") {
		t.Errorf("calm: %d epochs, converged after %d, %d restarts: %s", calm.EpochsDone, calm.ConvergedEpochs,
			calm.Restarts, calm.Message)
	}
	code, out := c.command("describe", "held")
	for _, want := range []string{"cpu:1", "straggl"} {
		if code != 0 || !strings.Contains(strings.ToLower(out), want) {
			t.Errorf("describe (exit %d) lacks %q:\n%s", code, want, out)
		}
	}
	if code, out := c.command("cancel", "held"); code != 0 {
		t.Errorf("cancel: exit %d: %s", code, out)
	}
}
