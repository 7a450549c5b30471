package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// trainerFolder makes a folder whose image has only the Go trainer.
func trainerFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "trainer"), "../../examples/gotrainer")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // an empty image has no libraries to link against
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the trainer: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nCOPY trainer /trainer\nENTRYPOINT [\"/trainer\", \"-hidden\", \"128\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tryImage skips where the engine builds images and cannot run them, as without control groups that it understands.
func tryImage(t *testing.T, e engine.Engine, dir string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), string(e), "build", "--quiet", dir)
	id, err := build.Output()
	if err != nil {
		t.Skipf("%s makes no image here: %v", e, err)
	}
	if out, err := exec.CommandContext(t.Context(), string(e), "run", "--rm", "--init", "--network", "host", strings.TrimSpace(string(id)), "-h").CombinedOutput(); err != nil {
		t.Skipf("%s runs no image here: %s", e, engine.LastLine(out))
	}
}

func TestAnImageTrainsIsPreemptedAndAccountedFor(t *testing.T) {
	const patience = 10 * time.Second
	runs, trouble := engine.Find(t.Context(), patience)
	if runs == engine.None {
		t.Skip(trouble)
	}
	dir := trainerFolder(t)
	tryImage(t, runs, dir)
	c := newCluster(t)
	c.start("up")
	c.connect()
	c.awaitNode()
	code, out := c.command("submit", "--id", "boxed", "--name", "boxed", "--build", "--work-dir", dir, "--batch-size", "32", "--training-set-size", "6000", "--max-epochs", "16", "--max-devices", "2")
	if code != 0 {
		t.Fatalf("submit: exit %d: %s", code, out)
	}
	_, tag, _ := strings.Cut(out, "built ")
	tag, _, _ = strings.Cut(tag, ";")
	t.Cleanup(func() { _ = exec.Command(string(runs), "rmi", "-f", tag).Run() })
	c.await("4 epochs", progressed(4))
	if code, out := c.command("submit", "--name", "urgent", "--id", "urgent", "--priority", "90", "--min-devices", "2", "--work-dir", c.dir, "--", "true"); code != 0 {
		t.Fatalf("submit: exit %d: %s", code, out)
	}
	jobs := c.await("the end of both", allEnded(2))
	if j := jobs["boxed"]; !strings.HasPrefix(j.Spec.Image, "sha256:") || j.State != train.StateSucceeded || j.EpochsDone != 16 || j.Preemptions != 1 {
		t.Errorf("%s in %s after %d epochs and %d preemptions: %s", j.State, j.Spec.Image, j.EpochsDone, j.Preemptions, j.Message)
	}
	accounts, err := bus.OpenKV(c.ctx, c.bus, contract.Accounts)
	if err != nil {
		t.Fatal(err)
	}
	// The processes of a container are not below the supervisor: their energy must still be found.
	c.await("its account", func(map[train.JobID]train.Job) bool {
		e, err := accounts.Get(c.ctx, "job.boxed")
		return err == nil && e.Value.Final
	})
	e, err := accounts.Get(c.ctx, "job.boxed")
	if err != nil || e.Value.MeanPower.Watts() < 1 {
		t.Errorf("mean power %.2f W (%v): a job that keeps two cores busy has more", e.Value.MeanPower.Watts(), err)
	}
	if out, err := exec.CommandContext(t.Context(), string(runs), "ps", "-aq", "--filter", "name=switchyard-boxed").Output(); err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("containers left over: %s %v", out, err)
	}
}
