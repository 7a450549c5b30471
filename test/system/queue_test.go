package system

import (
	"os"
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
	c.eventually("the bus is back", c.bus.Ready)
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
	if saved, err := filepath.Glob(filepath.Join(c.data, "jobs", "limited", "*", "*")); err != nil || len(saved) == 0 {
		t.Errorf("no checkpoint is kept: %v, error %v", saved, err)
	}
	if left := c.trainers(); len(left) > 0 {
		t.Errorf("processes %v go on", left)
	}
	_, out := c.command("describe", "limited")
	for _, want := range []string{"it has reached its time limit of 2s", "time limit  2s"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

// A job starts after the jobs that it waits for, which a person names as in other commands.
func TestJobsStartAfterOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	submit := func(id string, args ...string) {
		t.Helper()
		args = append([]string{"submit", "--id", id, "--name", "n-" + id, "--work-dir", c.dir}, args...)
		if code, out := c.command(args...); code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
	}
	goOn := filepath.Join(c.dir, "go-on")
	submit("first", "--", "sh", "-c", "while ! test -e "+goOn+"; do sleep 0.1; done")
	submit("second", "--after", "n-first", "--", "true")
	submit("never", "--after", "failed:first,any:second", "--", "true")
	submit("later", "--after", "any:never", "--", "true")
	if code, out := c.command("submit", "--id", "lost", "--after", "ok:nobody", "--work-dir", c.dir, "--", "true"); code != 2 || !strings.Contains(out, `no job "nobody"`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	c.await("the plan says what they wait for", func(jobs map[train.JobID]train.Job) bool {
		return strings.HasPrefix(jobs["second"].Message, "waits for first to succeed")
	})
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	jobs := c.await("all have ended", func(jobs map[train.JobID]train.Job) bool {
		for _, id := range []train.JobID{"first", "second", "never", "later"} {
			if !jobs[id].State.Terminal() {
				return false
			}
		}
		return true
	})
	if first, second := jobs["first"], jobs["second"]; second.State != train.StateSucceeded || second.StartedAt.Before(first.FinishedAt) {
		t.Errorf("second is %s, started at %s, and first ended at %s", second.State, second.StartedAt, first.FinishedAt)
	}
	if j := jobs["never"]; j.State != train.StateCancelled || j.Reason != "DependencyNeverSatisfied" || j.Attempt != 0 {
		t.Errorf("never is %s, %s: %s", j.State, j.Reason, j.Message)
	}
	if j := jobs["later"]; j.State != train.StateSucceeded {
		t.Errorf("later is %s, %s: %s", j.State, j.Reason, j.Message)
	}
}
