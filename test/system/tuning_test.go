package system

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// tuning returns the desired micro-batches of the one device.
func (c *cluster) tuning() train.Tuning {
	var t train.Tuning
	for _, text := range c.bucket(string(contract.Tunings)) {
		if err := json.Unmarshal(text, &t); err != nil {
			c.t.Fatal(err)
		}
	}
	return t
}

// follows reports whether the newest heartbeat of a job has the desired micro-batch.
func (c *cluster) follows(t train.Tuning, job train.JobID) bool {
	m, err := c.bus.Last(c.ctx, event.StreamSamples,
		event.Subject{Entity: "sample", ID: string(job), Fact: event.FactStepped, Version: 1})
	if err != nil {
		return false
	}
	beat, err := event.Decode[event.Stepped](m.Data)
	wanted, tuned := t.Of(job, beat.Attempt)
	return err == nil && tuned && beat.MicroBatch == wanted.MicroBatch && beat.Generation == t.Generation
}

// Two trainers share a GPU and are tuned. The planner is killed during the tuning, and later one of the trainers: the
// tuning still settles.
func TestJobsOnAGPUAreTunedThroughKills(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--device-kind", "gpu", "--sim-gpus", "1"}
	c.start("bus")
	c.connect()
	for _, s := range serviceNames() {
		c.start(s)
	}
	for _, id := range []train.JobID{"a", "b"} {
		c.submitSpec(id, train.Spec{
			Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-by", "2ms"}, Env: map[string]string{"TRAIN_LEDGER": c.ledger},
			BatchSize: 2, TrainingSetSize: 20_000, MaxEpochs: 1_000_000, AllowSharing: true, EstimatedMemoryMiB: 4096,
		})
	}
	var before train.Tuning
	c.await("a combination is measured", func(map[train.JobID]train.Job) bool {
		before = c.tuning()
		return len(before.Tenants) == 2 && before.Tried >= 1
	})
	c.kill("planner", syscall.SIGKILL)
	c.start("planner")
	c.await("the next planner measures the next one", func(map[train.JobID]train.Job) bool {
		now := c.tuning()
		if now.Tried < before.Tried {
			t.Fatalf("%d trials after %d: the round began again", now.Tried, before.Tried)
		}
		return now.Tried > before.Tried
	})
	killed := false
	for _, e := range readLedger(t, c.ledger) {
		if e.Job == "b" && !killed {
			killed = true
			if err := syscall.Kill(e.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	var settled train.Tuning
	c.await("both settle, one of them in its second attempt", func(map[train.JobID]train.Job) bool {
		settled = c.tuning()
		_, restarted := settled.Of("b", 2)
		return restarted && len(settled.Tenants) == 2 && settled.Settled.Code != "" &&
			c.follows(settled, "a") && c.follows(settled, "b")
	})
	if settled.Tried != 4 || settled.Generation <= before.Generation {
		t.Errorf("settled after %d trials of 4 combinations, in generation %d after %d", settled.Tried,
			settled.Generation, before.Generation)
	}
	if _, out := c.command("describe", "a"); !strings.Contains(out, fmt.Sprintf("(generation %d, 4 trials)", settled.Generation)) {
		t.Errorf("describe a:\n%s", out)
	}
}
