package system

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/chaos"
)

var errTooFewSteps = errors.New("it has not done enough steps")

// TestAnEpochIsInterruptedAndGoesOn: a job whose training is one long epoch leaves in the middle of it for a job of
// higher priority, goes on from there, and has done every step once.
func TestAnEpochIsInterruptedAndGoesOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	const steps, batch = 2000, 32 // 40 s at least: a busy machine decides before it ends
	trainer := func(more ...string) []string {
		return append([]string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-ledger-steps"}, more...)
	}
	spec := train.Spec{Env: map[string]string{"TRAIN_LEDGER": c.ledger}, BatchSize: batch, TrainingSetSize: steps * batch, MaxEpochs: 1}
	spec.Command = trainer("-slow-by", "20ms")
	c.submitSpec("long", spec)
	done := func() (list []chaos.Entry) {
		for _, e := range readLedger(t, c.ledger) {
			if e.Job == "long" && e.Event == "step" {
				list = append(list, e)
			}
		}
		return list
	}
	c.eventually("wait for steps of long", func() error {
		if len(done()) < 50 {
			return errTooFewSteps
		}
		return nil
	})
	urgent := 90
	spec.Command, spec.TrainingSetSize, spec.Priority, spec.MinDevices, spec.MaxDevices = trainer(), 10*batch, &urgent, 2, 2
	c.submitSpec("urgent", spec)
	jobs := c.await("both to end", func(jobs map[train.JobID]train.Job) bool {
		return jobs["long"].State.Terminal() && jobs["urgent"].State.Terminal()
	})
	long := jobs["long"]
	if long.State != train.StateSucceeded || long.Attempt < 2 || long.Preemptions < 1 || long.EpochsDone != 1 {
		t.Fatalf("long: %+v", long)
	}
	said := false
	for _, change := range long.History {
		said = said || strings.Contains(change.Message, "of 2000 of epoch 1 to make room; goes on from its checkpoint")
	}
	if !said {
		t.Errorf("its history does not say where it goes on: %+v", long.History)
	}
	times := map[int]int{}
	for _, e := range done() {
		times[e.Step]++
	}
	for step := 1; step <= steps; step++ {
		if times[step] != 1 {
			t.Errorf("step %d was done %d times", step, times[step])
		}
	}
}
