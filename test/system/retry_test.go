package system

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// failing returns the spec of a Go trainer whose first attempt is killed after some epochs and then fails with
// status 3.
func (c *cluster) failing(epochs, failAfter int) train.Spec {
	trainer := filepath.Join(binaries, "gotrainer") + " -hidden 8 -slow-by 1ms"
	script := fmt.Sprintf(`[ $SWITCHYARD_ATTEMPT -gt 1 ] && exec %s
%s & trainer=$!
until [ $(grep -c "\"event\":\"epoch\".*\"job\":\"$SWITCHYARD_JOB\"" $TRAIN_LEDGER) -ge %d ]; do sleep 0.05; done
kill -9 $trainer
exit 3`, trainer, trainer, failAfter)
	return train.Spec{
		Command: []string{"sh", "-c", script}, Env: map[string]string{"TRAIN_LEDGER": c.ledger}, BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: epochs,
	}
}

// firstPID returns the process of the first attempt of a job, which the ledger names.
func (c *cluster) firstPID(job string) int {
	for _, e := range readLedger(c.t, c.ledger) {
		if e.Job == job && e.Attempt == 1 {
			return e.PID
		}
	}
	c.t.Fatalf("the ledger has no attempt of %s", job)
	return 0
}

// started returns the number of epochs with which the first attempt of a job began.
func (c *cluster) started(job string) int {
	for _, e := range readLedger(c.t, c.ledger) {
		if e.Job == job && e.Attempt == 1 && e.Event == "start" {
			return e.Epoch
		}
	}
	return -1
}

// TestAFailedProgramIsTriedAgainFromItsCheckpoint: it fails after three epochs, everything else is killed before the
// next attempt, and no epoch whose checkpoint was reported is trained twice.
func TestAFailedProgramIsTriedAgainFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	const epochs = 8
	c.submitSpec("flaky", c.failing(epochs, 3))
	failed := c.await("the failure", func(jobs map[train.JobID]train.Job) bool { return jobs["flaky"].Retries == 1 })["flaky"]
	c.kill("up", syscall.SIGKILL)
	c.start("up")
	job := c.verify(map[string]int{"flaky": epochs}, map[int]bool{c.firstPID("flaky"): true})["flaky"]
	if job.Attempt != 2 || job.Retries != 1 || job.Recoveries != 0 {
		t.Errorf("attempt %d after %d retries and %d recoveries", job.Attempt, job.Retries, job.Recoveries)
	}
	want := fmt.Sprintf("attempt 1 failed with exit status 3, tries again from the checkpoint of epoch %d in 1 s", failed.EpochsDone)
	said := false
	for _, change := range job.History {
		said = said || strings.HasPrefix(change.Message, want)
	}
	// The ledger has an epoch before it is reported, so the kill may come before the report of the third.
	if !said || failed.EpochsDone < 2 {
		t.Errorf("its history of %d epochs does not say %q: %+v", failed.EpochsDone, want, job.History)
	}
	if code, out := c.command("describe", "flaky"); code != 0 || !strings.Contains(out, "in 2 attempts: 1 retry") {
		t.Errorf("describe: %d\n%s", code, out)
	}
}

// TestAPausedJobGoesOn: it leaves by its checkpoint, holds nothing while everything else is killed, and goes on from
// there once it is resumed. What is held does not start before it is released.
func TestAPausedJobGoesOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--cpu-slots", "1"}
	c.start("up")
	c.connect()
	epochs := map[string]int{"only": 20, "later": 2}
	c.submit("only", epochs["only"], 1)
	c.trained("only", 2)
	c.submit("later", epochs["later"], 1) // it has no device before it is held
	if code, out := c.command("hold", "later"); code != 0 {
		t.Fatalf("hold: %d, %s", code, out)
	}
	if code, out := c.command("pause", "--wait", "--reason", "demo", "only"); code != 0 || !strings.Contains(out, "job only paused: ") {
		t.Fatalf("pause: %d, %s", code, out)
	}
	if left := c.trainers(); len(left) > 0 {
		t.Errorf("processes %v are left over", left)
	}
	c.kill("up", syscall.SIGKILL)
	c.start("up")
	before := c.await("the jobs that wait", func(jobs map[train.JobID]train.Job) bool { return jobs["only"].State == train.StatePaused })["only"]
	if before.Withheld().Message == "" || before.Wanted.Reason != "demo" || before.EpochsDone < 2 || len(before.Devices) > 0 {
		t.Errorf("paused: %+v", before)
	}
	c.eventually("ps", func() error {
		if code, out := c.command("ps"); code != 0 || !strings.Contains(out, "paused by ") {
			return fmt.Errorf("%w: %d\n%s", errNotListed, code, out)
		}
		return nil
	})
	c.eventually("resume", func() error {
		if code, out := c.command("resume", "only"); code != 0 {
			return fmt.Errorf("%w: %d\n%s", errNotListed, code, out)
		}
		return nil
	})
	c.await("the resumed job", func(jobs map[train.JobID]train.Job) bool { return jobs["only"].EpochsDone > before.EpochsDone })
	if code, out := c.command("release", "later"); code != 0 {
		t.Fatalf("release: %d, %s", code, out)
	}
	jobs := c.verify(epochs, nil)
	code, out := c.command("rerun", "later", "--id", "again")
	again := c.await("the end of the second run", func(jobs map[train.JobID]train.Job) bool { return jobs["again"].State.Terminal() })["again"]
	if code != 0 || again.State != train.StateSucceeded || again.EpochsDone != epochs["later"] || c.started("again") != 0 {
		t.Errorf("rerun: %d, %s: %s after %d epochs, begun after %d", code, out, again.State, again.EpochsDone, c.started("again"))
	}
	// The shorter job may have had its device meanwhile.
	if only := jobs["only"]; only.Attempt != 2+only.Preemptions || only.Preemptions > 1 || jobs["later"].Attempt > 2 {
		t.Errorf("only: attempt %d, %d preemptions; later: attempt %d", only.Attempt, only.Preemptions, jobs["later"].Attempt)
	}
}

var errNotListed = errors.New("not as wanted")

// TestWhatHasEndedIsResumed: a job that failed and one that was cancelled go on from their checkpoints under the same
// ids, although everything is killed between the wish and its consequences.
func TestWhatHasEndedIsResumed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	epochs := map[string]int{"failing": 8, "stopped": 20}
	never, spec := 0, c.failing(epochs["failing"], 3)
	spec.Retries = &never
	c.submitSpec("failing", spec)
	c.submit("stopped", epochs["stopped"], 1)
	killed := map[int]bool{c.trained("stopped", 2): true}
	if code, out := c.command("cancel", "stopped"); code != 0 {
		t.Fatalf("cancel: %d, %s", code, out)
	}
	ended := c.await("both ends", func(jobs map[train.JobID]train.Job) bool {
		return jobs["failing"].State == train.StateFailed && jobs["stopped"].State == train.StateCancelled
	})
	killed[c.firstPID("failing")] = true
	if code, out := c.command("resume", "failing", "stopped"); code != 0 {
		t.Fatalf("resume: %d, %s", code, out)
	}
	c.kill("up", syscall.SIGKILL)
	c.start("up")
	for id, j := range c.verifyLives(epochs, killed, 2) {
		before := ended[id]
		if j.Resumed != 1 || j.Attempt != before.Attempt+1 || j.RunSeconds <= before.RunSeconds || before.EpochsDone < 2 {
			t.Errorf("%s: resumed %d times, attempt %d after %d, %v s after %v, from epoch %d", id, j.Resumed, j.Attempt, before.Attempt, j.RunSeconds, before.RunSeconds, before.EpochsDone)
		}
	}
	if code, out := c.command("resume", "stopped"); code == 0 || !strings.Contains(out, "has ended: succeeded") {
		t.Errorf("resume of a success: %d, %s", code, out)
	}
}
