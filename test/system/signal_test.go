package system

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// plainTraining is a training in shell that calls nothing and counts in a checkpoint. Its first attempt goes on until
// it has to leave, its second one ends.
const plainTraining = `n=0
if [ -e "$1.ckpt" ]; then n=$(cat "$1.ckpt"); fi
if [ "$n" -gt 0 ]; then echo "goes on from step $n"; exit 0; fi
while :; do n=$((n+1)); echo "$n" > "$1.tmp"; mv "$1.tmp" "$1.ckpt"; sleep 0.2; if [ -n "$leave" ]; then exit 124; fi; done
`

// TestPlainScriptsArePreemptedBySignal: scripts that call nothing make room for a job of higher priority, whether they
// catch SIGUSR1 or no signal at all, and go on from their checkpoints. The executor and the agent die meanwhile.
func TestPlainScriptsArePreemptedBySignal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--allow-root", c.dir}
	c.start("up")
	c.connect()
	for id, script := range map[train.JobID]string{"catches": "trap 'leave=1' USR1\n" + plainTraining, "knows-no-signal": plainTraining} {
		path := filepath.Join(c.dir, string(id)+".sh")
		if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		spec := train.Spec{Command: []string{"sh", path, string(id)}, Checkpoint: string(id) + ".ckpt"}
		if id == "knows-no-signal" {
			spec.Preempt = train.PreemptBySignal
		}
		c.submitSpec(id, spec)
	}
	c.eventually("both can be asked to leave", func() error {
		for id, signal := range map[train.JobID]string{"catches": train.SignalSave, "knows-no-signal": train.SignalEnd} {
			if r := c.report(id, 1); r.Signal != signal || r.Checkpoint == "" {
				return errors.New("not yet")
			}
		}
		return nil
	})
	priority := 90
	c.submitSpec("urgent", train.Spec{Command: []string{"true"}, Priority: &priority, MinDevices: 2})
	c.kill("up", syscall.SIGKILL)
	c.start("up")
	for id, j := range c.await("all have ended", allEnded(3)) {
		left := map[train.JobID]int{"catches": 1, "knows-no-signal": 1}[id]
		if j.State != train.StateSucceeded || j.Preemptions != left || j.Restarts != left {
			t.Errorf("%s: %s after %d preemptions and %d restarts, want %d: %s", id, j.State, j.Preemptions, j.Restarts, left, j.Message)
		}
	}
}

// report returns what the code of an attempt, or its supervisor, has reported.
func (c *cluster) report(id train.JobID, attempt int) train.AttemptReport {
	c.t.Helper()
	kv, err := bus.OpenKV[train.AttemptReport](c.ctx, c.bus, contract.Reports)
	if err != nil {
		return train.AttemptReport{}
	}
	e, err := kv.Get(c.ctx, contract.ReportKey(id, attempt))
	if err != nil {
		return train.AttemptReport{}
	}
	return e.Value
}
