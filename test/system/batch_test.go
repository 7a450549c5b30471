package system

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// torchCluster is a cluster with two CPU slots, and the command that trains LeNet-5 with PyTorch there.
func torchCluster(t *testing.T) (*cluster, []string) {
	t.Helper()
	python := debianTorch()
	if python == "" {
		t.Skip("python3 has no torch here (Debian: apt-get install python3-torch)")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.env = []string{"SWITCHYARD_PYTHON_PATH=" + filepath.Join(repository, "libs/python"), "OMP_NUM_THREADS=1", "SWITCHYARD_JOB_ENVIRONMENT=OMP_NUM_THREADS"}
	c.flags = []string{"--cpu-slots", "2", "--allow-root", c.dir, "--rescale-min-interval", "30s", "--restart-price", "1s", "--refit-interval", "500ms"}
	c.start("up")
	c.connect()
	return c, []string{python, filepath.Join(repository, "examples/python/train_torch.py"), "0.01"}
}

// epochs returns the ended epochs of a job.
func (c *cluster) epochs(id train.JobID) (all []event.EpochEnded) {
	c.t.Helper()
	subject := event.JobSubject(id, event.FactEpochEnded).String()
	err := c.bus.Stored(c.ctx, event.StreamJobs, []string{subject}, time.Time{}, func(m bus.Message) {
		if e, err := event.Decode[event.EpochEnded](m.Data); err == nil {
			all = append(all, e)
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

const endless = 1_000_000 // epochs

// TestATorchTrainingGrowsWithItsGlobalBatch: while another job has one of the two devices, a training has the other.
// Then its user asks for both, whichever number turns out to be faster on this machine, and its steps have as many
// samples as before.
func TestATorchTrainingGrowsWithItsGlobalBatch(t *testing.T) {
	t.Parallel()
	c, command := torchCluster(t)
	c.submitSpec("holder", train.Spec{Command: []string{"sleep", "600"}, BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1})
	c.await("the one device is held", state("holder", train.StateRunning, train.StateProfiling))
	c.submitSpec("torch", train.Spec{Command: command, BatchSize: 32, TrainingSetSize: 512, MaxEpochs: endless, MaxDevices: 2})
	c.await("epochs on one device", func(jobs map[train.JobID]train.Job) bool { return jobs["torch"].EpochsDone >= 2 })
	if code, out := c.command("cancel", "holder"); code != 0 {
		t.Fatalf("cancel: exit %d: %s", code, out)
	}
	if code, out := c.command("set", "torch", "devices=2"); code != 0 {
		t.Fatalf("set devices=2: exit %d: %s", code, out)
	}
	on := map[int]int{}
	c.await("epochs on two devices", func(map[train.JobID]train.Job) bool {
		clear(on)
		for _, e := range c.epochs("torch") {
			on[e.Devices]++
			if samples := e.Batch.Global(e.Devices); samples != 32 {
				t.Fatalf("epoch %d on %d devices has steps of %d samples (%+v), want 32", e.EpochsDone, e.Devices, samples, e.Batch)
			}
		}
		return on[2] >= 2
	})
	if on[1] < 2 {
		t.Errorf("epochs by number of devices: %v, want some on one", on)
	}
}

// TestATorchTrainingChangesItsBatchWithoutARestart as soon as its gradient noise is known.
func TestATorchTrainingChangesItsBatchWithoutARestart(t *testing.T) {
	t.Parallel()
	c, command := torchCluster(t)
	const base = 2
	c.submitSpec("adaptive", train.Spec{
		Command: command, BatchSize: base, TrainingSetSize: 1000, MaxEpochs: endless, AdaptiveBatch: &train.AdaptiveBatchSpec{Max: 128, MaxPerDevice: 128},
	})
	c.await("larger steps", func(jobs map[train.JobID]train.Job) bool {
		if j := jobs["adaptive"]; j.Attempt > 1 || j.State.Terminal() {
			t.Fatalf("%s in attempt %d: %s", j.State, j.Attempt, j.Message)
		}
		all := c.epochs("adaptive")
		return len(all) > 0 && all[len(all)-1].Batch.Global(1) >= 2*base
	})
	if _, out := c.command("describe", "adaptive"); !strings.Contains(out, "\nbatch       steps of ") || !strings.Contains(out, " - ") {
		t.Errorf("describe does not say why it has its batch:\n%s", out)
	}
}
