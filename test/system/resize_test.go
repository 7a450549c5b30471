package system

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// A running job gets another number of devices by `set`: it leaves at its next save and goes on with them. While they
// are not free it keeps what it has. No epoch is trained twice.
func TestARunningJobIsResizedBySet(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	c.awaitNode()
	set := func(devices string) {
		t.Helper()
		if code, out := c.command("set", "a", "devices="+devices); code != 0 {
			t.Fatalf("set devices=%s: %d, %s", devices, code, out)
		}
	}
	runs := func(id train.JobID, attempt, devices int) {
		t.Helper()
		c.await(fmt.Sprintf("attempt %d of %s on %d devices", attempt, id, devices), func(jobs map[train.JobID]train.Job) bool {
			j := jobs[id]
			return j.State.Active() && j.Attempt == attempt && len(j.Devices) == devices
		})
	}
	submit := func(id string, epochs string) {
		t.Helper()
		code, out := c.command("submit", "--id", id, "--name", id, "--devices", "1", "--strategy", "all_reduce", "--max-epochs", epochs, "--batch-size", "32", "--training-set-size", "6000", "-e", "TRAIN_LEDGER="+c.ledger,
			"--work-dir", c.dir, "--", filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-by", "1ms")
		if code != 0 {
			t.Fatalf("submit: %d, %s", code, out)
		}
	}
	submit("a", "1000")
	set("1") // before or after the verdict
	c.trained("a", 1)
	runs("a", 1, 1)
	set("2")
	runs("a", 2, 2)
	c.trained("a", 3)
	set("1")
	runs("a", 3, 1)
	submit("b", "1000")
	runs("b", 1, 1)
	c.trained("a", 6)
	set("2")
	c.await("a keeps its device while b has the other one", func(map[train.JobID]train.Job) bool {
		_, out := c.command("describe", "a")
		return strings.Contains(out, "its user asks for 2, and it gets them when they are free")
	})
	if code, out := c.command("cancel", "b"); code != 0 {
		t.Fatalf("cancel: %d, %s", code, out)
	}
	runs("a", 4, 2)
	var epochs []int
	for _, e := range readLedger(t, c.ledger) {
		if e.Event == "epoch" && e.Job == "a" {
			epochs = append(epochs, e.Epoch)
		}
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(epochs))); len(unique) != len(epochs) || len(epochs) == 0 {
		t.Errorf("epochs trained: %v", epochs)
	}
}
