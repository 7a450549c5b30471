package system

import (
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
	if !said || failed.EpochsDone < 3 {
		t.Errorf("its history does not say %q: %+v", want, job.History)
	}
	if code, out := c.command("describe", "flaky"); code != 0 || !strings.Contains(out, "0 recoveries, 1 retry") {
		t.Errorf("describe: %d\n%s", code, out)
	}
}
