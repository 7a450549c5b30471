package system

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// A job ends at its time limit also if the scheduler was killed before and came back after it; a plain program ends
// there, too.
func TestTheTimeLimitOutlivesTheScheduler(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	trainer := train.Spec{
		Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-by", "1ms"}, Env: map[string]string{"TRAIN_LEDGER": c.ledger},
		BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: 100_000, TimeLimit: unit.Duration(2 * time.Second),
	}
	c.submitSpec("limited", trainer)
	c.trained("limited", 1)
	c.kill("up", syscall.SIGKILL)
	// Ten more epochs take two seconds, unless the limit had come before the kill.
	c.eventually("wait for the time limit", func() error {
		for _, e := range readLedger(t, c.ledger) {
			if e.Event == "epoch" && e.Epoch >= 11 {
				return nil
			}
		}
		if len(c.trainers()) == 0 {
			return nil
		}
		return errNotTrained
	})
	c.start("up")
	if code, out := c.command("submit", "--id", "plain", "--time-limit", "1s", "--work-dir", c.dir, "--", "sleep", "600"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	jobs := c.await("the jobs end at their time limits", func(jobs map[train.JobID]train.Job) bool {
		return jobs["limited"].State.Terminal() && jobs["plain"].State.Terminal()
	})
	for id, j := range jobs {
		if j.State != train.StateFailed || j.Reason != "TimeLimit" || j.Attempt != 1 {
			t.Errorf("%s is %s, %s: %s, attempt %d", id, j.State, j.Reason, j.Message, j.Attempt)
		}
	}
	if saved, err := filepath.Glob(filepath.Join(c.dir, "jobs", "limited", "*", "*")); err != nil || len(saved) == 0 {
		t.Errorf("no checkpoint is kept: %v, error %v", saved, err)
	}
	if left := c.trainers(); len(left) > 0 {
		t.Errorf("processes %v go on", left)
	}
	_, out := c.command("describe", "limited")
	for _, want := range []string{"it has run for 2s, which is its time limit", "time limit  2s"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}
