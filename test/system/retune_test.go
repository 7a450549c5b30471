package system

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A job gets another micro-batch while it trains, then other memory and one device less, which restarts it once, and at
// last its devices back: executor, agent and planner are killed during this, and no epoch is trained twice.
func TestARunningJobIsRetunedThroughKills(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("bus")
	c.connect()
	for _, s := range serviceNames() {
		if s != "experiments" { // the test plays this service
			c.start(s)
		}
	}
	wishes, err := bus.OpenKV(c.ctx, c.bus, contract.Settings)
	if err != nil {
		t.Fatal(err)
	}
	began, generation := time.Now(), uint64(0)
	wish := func(values map[string]float64) {
		t.Helper()
		generation++
		_, err := wishes.Modify(c.ctx, "a", func(s *train.Setting) (bool, error) {
			*s = train.Setting{Job: "a", Experiment: "e", Generation: generation, BatchSize: 32, BatchDevices: 2, Values: values}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	has := func(values map[string]float64, attempt int) {
		t.Helper()
		c.await(fmt.Sprintf("attempt %d has %v", attempt, values), func(map[train.JobID]train.Job) bool {
			there := false
			subject := event.Subject{Entity: "tune", ID: "e", Fact: event.FactRetuned, Version: 1}.String()
			err := c.bus.Stored(c.ctx, event.StreamTune, []string{subject}, began, func(m bus.Message) {
				b, err := event.Decode[event.Retuned](m.Data)
				if err != nil || b.Generation != generation || b.Attempt != attempt || len(b.Pending(values)) > 0 {
					return
				}
				if there = true; len(b.Refused) > 0 {
					t.Errorf("refused: %v", b.Refused)
				}
			})
			return err == nil && there
		})
	}
	first := map[string]float64{"cores": 1, "micro_batch": 32, "memory_mib": 1024, "devices": 2}
	wish(first)
	c.submitSpec("a", train.Spec{
		Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "64"}, Env: map[string]string{"TRAIN_LEDGER": c.ledger},
		BatchSize: 32, TrainingSetSize: 4000, MaxEpochs: 1_000_000, MinDevices: 2, MaxDevices: 2,
	})
	has(first, 1)
	live := map[string]float64{"cores": 2, "micro_batch": 8, "memory_mib": 1024, "devices": 2}
	wish(live)
	c.kill("nodeagent", syscall.SIGKILL)
	c.start("nodeagent")
	has(live, 1)
	again := map[string]float64{"cores": 1, "micro_batch": 64, "memory_mib": 512, "devices": 1}
	wish(again)
	c.kill("executor", syscall.SIGKILL)
	c.start("executor")
	has(again, 2)
	back := map[string]float64{"cores": 1, "micro_batch": 32, "memory_mib": 512, "devices": 2}
	wish(back)
	c.kill("planner", syscall.SIGKILL)
	c.start("planner")
	has(back, 3)
	done := 0
	c.await("it trains on", func(jobs map[train.JobID]train.Job) bool {
		if done == 0 {
			done = jobs["a"].EpochsDone
		}
		return done > 0 && jobs["a"].EpochsDone > done+1
	})
	var a train.Attempt
	if err := json.Unmarshal(c.bucket(string(contract.Attempts))["a"], &a); err != nil || a.Number != 3 || a.DeviceCount() != 2 || a.Setting.Values["memory_mib"] != 512 {
		t.Errorf("attempt %d was started with %v, %v", a.Number, a.Setting.Values, err)
	}
	var epochs []int
	for _, e := range readLedger(t, c.ledger) {
		if e.Event == "epoch" {
			epochs = append(epochs, e.Epoch)
		}
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(epochs))); len(unique) != len(epochs) || len(epochs) == 0 {
		t.Errorf("epochs trained: %v", epochs)
	}
}
