package system

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// importTrainer creates an image that contains only the Go trainer.
func importTrainer(t *testing.T, tag string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trainer")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../examples/gotrainer")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // an empty image has no libraries to link against
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the trainer: %v\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "trainer", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	docker := exec.CommandContext(t.Context(), "docker", "import", "--change",
		`ENTRYPOINT ["/trainer", "-hidden", "128"]`, "-", tag)
	docker.Stdin = &archive
	if out, err := docker.CombinedOutput(); err != nil {
		t.Fatalf("docker import: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", tag).Run() })
}

func TestAnImageTrainsIsPreemptedAndAccountedFor(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "docker", "info").CombinedOutput(); err != nil {
		t.Skipf("no docker engine answers here: %s", bytes.TrimSpace(out))
	}
	const tag = "switchyard-test-trainer:latest"
	importTrainer(t, tag)
	c := newCluster(t)
	c.start("up")
	c.connect()
	body, err := json.Marshal(train.Spec{Name: "boxed", Image: tag, BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: 16, MaxDevices: 2})
	if err != nil {
		t.Fatal(err)
	}
	c.publish("yard.job.boxed.submitted.v1", string(body))
	c.await("4 epochs", progressed(4))
	if code, out := c.command("submit", "--name", "urgent", "--id", "urgent", "--priority", "90", "--min-devices", "2", "--work-dir", c.dir, "--", "true"); code != 0 {
		t.Fatalf("submit: exit %d: %s", code, out)
	}
	jobs := c.await("the end of both", allEnded(2))
	if j := jobs["boxed"]; j.State != train.StateSucceeded || j.EpochsDone != 16 || j.Preemptions != 1 {
		t.Errorf("%s after %d epochs and %d preemptions: %s", j.State, j.EpochsDone, j.Preemptions, j.Message)
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
	if out, err := exec.CommandContext(t.Context(), "docker", "ps", "-aq", "--filter", "name=switchyard-boxed").Output(); err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("containers left over: %s %v", out, err)
	}
}
