package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// TestServersTrainToTheSameBytesAsARing trains two workers around two parameter servers, beside a scheduler with
// nothing to do. The order of two addends does not matter, so the sums equal those of a ring.
func TestServersTrainToTheSameBytesAsARing(t *testing.T) {
	binary, dir, straight := build(t), t.TempDir(), t.TempDir()
	a := newAgent(t, 9)
	start(t, binary, straight, a.api(), 1, 2, "-epochs", "2").wantCodes(t, 0)
	cluster := fmt.Sprintf(`"cluster":{"ps":["127.0.0.1:%s","127.0.0.1:%s"],"worker":["127.0.0.1:1","127.0.0.1:2"]}`,
		freePort(t), freePort(t))
	process := func(role string, index, rank int) *exec.Cmd {
		c := exec.CommandContext(t.Context(), binary, smallNet("-epochs", "2")...)
		c.Env = []string{
			"JOB_UUID=job", "SWITCHYARD_SNAPSHOTS_DIR=" + dir, "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", "RANK=" + strconv.Itoa(rank), "WORLD_SIZE=2", "NUM_GPUS=2",
			"DMLC_NUM_SERVER=2", "SWITCHYARD_ATTEMPT=1",
		}
		if role != "" {
			c.Env = append(c.Env, fmt.Sprintf(`TF_CONFIG={%s,"task":{"type":%q,"index":%d}}`, cluster, role, index))
		}
		c.Stderr = &bytes.Buffer{}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	others := []*exec.Cmd{process("", 0, 0), process(taskServer, 0, 0), process(taskServer, 1, 0)}
	for _, worker := range []*exec.Cmd{process(taskWorker, 0, 0), process(taskWorker, 1, 1)} {
		if err := worker.Wait(); err != nil {
			t.Errorf("worker: %v: %s", err, worker.Stderr)
		}
	}
	for i, c := range others {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if _ = c.Wait(); c.ProcessState.ExitCode() != exitTerminated {
			t.Errorf("process %d that is no worker exits with %d: %s", i, c.ProcessState.ExitCode(), c.Stderr)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "job", "checkpoint.bin"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(straight, "job", "checkpoint.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the servers' checkpoint differs from the ring's")
	}
}
