package system

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestAGroupLearnsItsBatchSize runs a recurring job on a simulated GPU, whose batch size determines its run time. Costs
// go from the meter through the ledger to the planner, which settles on the cheapest size.
func TestAGroupLearnsItsBatchSize(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--device-kind", "gpu", "--sim-gpus", "1", "--sim-gpu-watts", "300", "--meter-interval", "100ms"}
	c.start("up")
	c.connect()
	const jobs = 7
	var chosen []int
	for i := range jobs {
		id := train.JobID(fmt.Sprintf("night-%d", i))
		c.submitSpec(id, train.Spec{
			Command:   []string{"sh", "-c", `case $BATCH_SIZE in 32) sleep 3;; 64) sleep 1;; *) sleep 4;; esac`},
			BatchSize: 32, TrainingSetSize: 1000, MaxEpochs: 1,
			Energy: &train.EnergySpec{Eta: new(0.5), Group: "nightly", BatchSizes: []int{32, 64, 128}},
		})
		chosen = append(chosen, c.await(string(id), state(id, train.StateSucceeded))[id].TunedBatch)
		c.await("its cost is noted", func(map[train.JobID]train.Job) bool { return c.underWay() == 0 })
	}
	if chosen[0] != 32 || chosen[jobs-2] != 64 || chosen[jobs-1] != 64 {
		t.Errorf("batch sizes %v", chosen)
	}
	if code, out := c.command("describe", "night-6"); code != 0 || !strings.Contains(out, "batch size 64") {
		t.Errorf("describe (exit %d) does not show the batch size:\n%s", code, out)
	}
	if code, out := c.command("tune", "groups", "nightly"); code != 0 || !strings.Contains(out, "7 recurrences") || strings.Count(out, "reached") != jobs {
		t.Errorf("exit code %d, want %d recurrences:\n%s", code, jobs, out)
	}
}

// underWay returns the number of jobs of groups that the planner counts as running.
func (c *cluster) underWay() int {
	c.t.Helper()
	n := 0
	for _, text := range c.bucket(string(contract.Groups)) {
		var record struct{ Running map[string]any }
		if err := json.Unmarshal(text, &record); err != nil {
			c.t.Fatal(err)
		}
		n += len(record.Running)
	}
	return n
}

// TestARunningJobGetsItsPowerLimit uses a simulated GPU that is no slower at a lower limit: the lowest one costs least.
// The limit goes when the job ends.
func TestARunningJobGetsItsPowerLimit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--device-kind", "gpu", "--sim-gpus", "1", "--sim-gpu-watts", "300", "--meter-interval", "100ms", "--power-limits", "150,300"}
	c.start("up")
	c.connect()
	c.submitSpec("j", train.Spec{
		Command:   []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-device", "gpu:0", "-slow-by", "50ms"},
		BatchSize: 32, TrainingSetSize: 320, MaxEpochs: 100_000, Energy: &train.EnergySpec{Eta: new(1.0)},
	})
	limit := func(want unit.Power) func(map[train.JobID]train.Job) bool {
		return func(map[train.JobID]train.Job) bool {
			text, err := os.ReadFile(filepath.Join(c.data, "nodeagent", "sim-gpu-limits"))
			set := map[string]unit.Power{}
			if err != nil || json.Unmarshal(text, &set) != nil {
				return false
			}
			for _, l := range set {
				return l == want
			}
			return false
		}
	}
	c.await("the lower limit is tried", limit(150*unit.Watt))
	c.await("it is chosen", func(map[train.JobID]train.Job) bool {
		var l struct {
			Watts   float64
			Settled bool
		}
		text := c.bucket(string(contract.PowerLimits))["j"]
		return text != nil && json.Unmarshal(text, &l) == nil && l.Settled && l.Watts == 150
	})
	if code, out := c.command("cancel", "j"); code != 0 {
		t.Errorf("cancel: exit %d: %s", code, out)
	}
	c.await("the end", state("j", train.StateCancelled))
	c.await("the limit is given back", limit(300*unit.Watt))
}

// bucket reads all of a bucket.
func (c *cluster) bucket(name string) map[string]json.RawMessage {
	c.t.Helper()
	var entries []bus.Entry[json.RawMessage]
	c.eventually("list "+name, func() error {
		kv, err := bus.OpenKV(c.ctx, c.bus, contract.Bucket[json.RawMessage](name))
		if err == nil {
			entries, err = kv.List(c.ctx)
		}
		return err
	})
	all := map[string]json.RawMessage{}
	for _, e := range entries {
		all[e.Key] = e.Value
	}
	return all
}
