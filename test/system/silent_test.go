package system

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestAHungProcessIsRestartedFromItsCheckpoint: a trainer is stopped in the middle of its work, and reports no more
// steps. After a minute it is ended, and the next attempt trains the rest.
func TestAHungProcessIsRestartedFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	const epochs = 12
	c.submitSpec("hung", train.Spec{
		Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-by", "5ms"}, Env: map[string]string{"TRAIN_LEDGER": c.ledger},
		BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: epochs, RestartSilent: true,
	})
	pid := c.trained("hung", 2)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	job := c.verify(map[string]int{"hung": epochs}, map[int]bool{pid: true})["hung"]
	if job.Attempt != 2 || job.Recoveries != 1 {
		t.Errorf("attempt %d after %d recoveries", job.Attempt, job.Recoveries)
	}
	said := false
	for _, change := range job.History {
		said = said || change.Reason == train.CodeSilent && strings.HasPrefix(change.Message, "attempt 1 ended: its code reported no more steps")
	}
	if !said {
		t.Errorf("its history does not say why: %+v", job.History)
	}
}
