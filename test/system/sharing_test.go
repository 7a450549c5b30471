package system

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Two jobs share the one GPU of the machine by memory, as their files say, and a third that does not fit waits until
// one of them has ended.
func TestJobsShareAGPU(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--device-kind", "gpu", "--sim-gpus", "1", "--sim-gpu-memory", "16"}
	c.start("up")
	c.connect()
	submit := func(id train.JobID, gib, epochs int) {
		t.Helper()
		file := filepath.Join(c.dir, string(id)+".yaml")
		text := fmt.Sprintf(`name: %s
command: [%s, -hidden, "8", -slow-by, 1ms]
env: {TRAIN_LEDGER: %q}
batch_size: 32
training_set_size: 6000
max_epochs: %d
allow_sharing: true
estimated_memory_mib: %d
`, id, filepath.Join(binaries, "gotrainer"), c.ledger, epochs, gib<<10)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := c.command("submit", file, "--id", string(id)); code != 0 {
			t.Fatalf("submit %s: exit %d: %s", id, code, out)
		}
	}
	submit("large", 10, endless)
	submit("small", 5, endless)
	c.await("two jobs on one GPU", func(jobs map[train.JobID]train.Job) bool {
		return jobs["large"].EpochsDone >= 2 && jobs["small"].EpochsDone >= 2
	})
	submit("third", 4, 3)
	c.await("the reason why the third waits", func(jobs map[train.JobID]train.Job) bool { return jobs["third"].Reason == "WaitingForMemory" })
	if _, out := c.command("describe", "third"); !strings.Contains(out, "the most that is free on a device that may be shared is 1.0 GiB") {
		t.Errorf("describe third:\n%s", out)
	}
	for id, gib := range map[string]int64{"large": 10, "small": 5} {
		if a := c.attempt(train.JobID(id)); a.Number != 1 || len(a.Devices) != 1 || a.Devices[0] != "gpu:0" || int64(a.Memory) != gib<<30 {
			t.Errorf("%s: attempt %d has %s of %v", id, a.Number, a.Memory, a.Devices)
		}
	}
	if code, out := c.command("cancel", "large"); code != 0 {
		t.Fatalf("cancel large: exit %d: %s", code, out)
	}
	c.await("the third is done beside the small one", func(jobs map[train.JobID]train.Job) bool {
		return jobs["third"].State == train.StateSucceeded && jobs["small"].State == train.StateRunning && jobs["small"].Attempt == 1
	})
	if code, out := c.command("cancel", "small"); code != 0 {
		t.Fatalf("cancel small: exit %d: %s", code, out)
	}
	c.await("the small one has ended", state("small", train.StateCancelled))
}

// A job that uses more than its part of a GPU is warned once, stops at its epoch's end and continues with what it needs
// on the other GPU. Its co-runner trains on undisturbed, and a later job gets the room.
func TestAJobThatOutgrowsItsPartIsMoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--device-kind", "gpu", "--sim-gpus", "2", "--sim-gpu-memory", "16"}
	c.start("up")
	c.connect()
	submit := func(id train.JobID, partGiB, usedGiB int64) {
		t.Helper()
		c.submitSpec(id, train.Spec{
			Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-by", "1ms", "-memory-mib", fmt.Sprint(usedGiB << 10)}, Env: map[string]string{"TRAIN_LEDGER": c.ledger},
			BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: endless, AllowSharing: true, EstimatedMemoryMiB: partGiB << 10,
		})
	}
	running := func(ids ...train.JobID) func(map[train.JobID]train.Job) bool {
		return func(jobs map[train.JobID]train.Job) bool {
			return !slices.ContainsFunc(ids, func(id train.JobID) bool { return jobs[id].State != train.StateRunning })
		}
	}
	// A third job has the whole of one GPU, so that the two have to share.
	c.submit("whole", endless, 1)
	c.await("one job has a GPU for itself", running("whole"))
	submit("modest", 8, 6)
	submit("greedy", 4, 12)
	// The reason is soon that of the next plan: for what it waits. The warning stays.
	c.await("it does not run any more, and is warned", func(jobs map[train.JobID]train.Job) bool {
		g := jobs["greedy"]
		return g.State == train.StatePreempted && g.Attempt == 1 && len(g.Warnings) == 1
	})
	submit("next", 7, 6)
	c.await("another one has its room", running("next", "modest"))
	if code, out := c.command("cancel", "whole"); code != 0 {
		t.Fatalf("cancel whole: exit %d: %s", code, out)
	}
	var greedy train.Job
	c.await("it goes on where there is enough", func(jobs map[train.JobID]train.Job) bool {
		greedy = jobs["greedy"]
		if modest := jobs["modest"]; modest.Attempt != 1 || modest.State != train.StateRunning {
			t.Fatalf("the neighbour is disturbed: %s, attempt %d: %s", modest.State, modest.Attempt, modest.Message)
		}
		return greedy.State == train.StateRunning && greedy.Attempt == 2 && greedy.EpochsDone >= 4
	})
	if len(greedy.Warnings) != 1 || !strings.Contains(greedy.Warnings[0], "uses 12.0 GiB of gpu:") || greedy.Spec.EstimatedMemoryMiB != 13517 {
		t.Errorf("warnings %q, asks for %d MiB", greedy.Warnings, greedy.Spec.EstimatedMemoryMiB)
	}
	if _, out := c.command("describe", "greedy"); !strings.Contains(out, greedy.Warnings[0]) || !strings.Contains(out, "advisory: ") {
		t.Errorf("describe greedy:\n%s", out)
	}
	if a := c.attempt("greedy"); a.Memory < 12*unit.GiB || a.Enforcement != train.EnforcedByAdvice {
		t.Errorf("greedy goes on with %s, held to it by %s", a.Memory, a.Enforcement)
	}
}

// attempt returns the attempt of a job as describe shows it.
func (c *cluster) attempt(id train.JobID) train.Attempt {
	c.t.Helper()
	var shown struct {
		Attempt train.Attempt `json:"attempt"`
	}
	_, out := c.command("describe", string(id), "-o", "json")
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		c.t.Fatalf("describe %s: %v\n%s", id, err, out)
	}
	return shown.Attempt
}
