package system

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Two jobs share the one GPU of the machine by memory, as their files say, and a third that does not fit waits until one of them has left.
func TestJobsShareAGPU(t *testing.T) {
	c := newCluster(t)
	c.flags = []string{"--device-kind", "gpu", "--sim-gpus", "1", "--sim-gpu-memory", "16"}
	c.start("up")
	c.connect()
	submit := func(id train.JobID, gib, epochs int) {
		t.Helper()
		file := filepath.Join(c.dir, string(id)+".yaml")
		text := fmt.Sprintf(`name: %s
command: [%s, -hidden, "128"]
env: {TRAIN_LEDGER: %q}
batch_size: 32
training_set_size: 6000
max_epochs: %d
allow_sharing: true
estimated_memory_mib: %d
`, id, filepath.Join(binaries, "trainer"), c.ledger, epochs, gib<<10)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := c.command("submit", file, "--id", string(id)); code != 0 {
			t.Fatalf("submit %s: exit %d: %s", id, code, out)
		}
	}
	const endless = 1_000_000
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
		var shown struct {
			Attempt train.Attempt `json:"attempt"`
		}
		_, out := c.command("describe", id, "-o", "json")
		if err := json.Unmarshal([]byte(out), &shown); err != nil {
			t.Fatalf("describe %s: %v\n%s", id, err, out)
		}
		if a := shown.Attempt; a.Number != 1 || len(a.Devices) != 1 || a.Devices[0] != "gpu:0" || int64(a.Memory) != gib<<30 {
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
