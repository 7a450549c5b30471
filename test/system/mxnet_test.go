package system

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestAProgramOfMXNetIsFollowedAndGoesOn: a program that takes the options of MXNet's examples and calls nothing is
// submitted by the template, its epochs and losses are read in its output, and after a pause it loads what it saved.
func TestAProgramOfMXNetIsFollowedAndGoesOn(t *testing.T) {
	t.Parallel()
	pythonProgram(t)
	c := newCluster(t)
	c.flags = []string{"--cpu-slots", "1"}
	c.start("up")
	c.connect()
	c.awaitNode()
	code := filepath.Join(c.dir, "code")
	if err := os.CopyFS(code, os.DirFS("testdata/mxnet")); err != nil { // below a folder that jobs may use
		t.Fatal(err)
	}
	const epochs = 60
	job := filepath.Join(c.dir, "job.yaml")
	status, text := c.command("render", "mxnet-parameter-server", "--set", "name=cifar", "--set", "code="+code, "--set", "batch_size=32", "--set", "training_set_size=640",
		"--set", "epochs="+strconv.Itoa(epochs), "--set", "loss=ce", "--set", "max_workers=1", "--set", "servers=1")
	if status != 0 {
		t.Fatalf("render: %s", text)
	}
	if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out := c.command("submit", "--id", "cifar", job); status != 0 {
		t.Fatalf("submit: %d, %s", status, out)
	}
	c.await("three epochs", func(jobs map[train.JobID]train.Job) bool { return jobs["cifar"].EpochsDone >= 3 })
	if status, out := c.command("pause", "--wait", "cifar"); status != 0 {
		t.Fatalf("pause: %d, %s", status, out)
	}
	if status, out := c.command("resume", "cifar"); status != 0 {
		t.Fatalf("resume: %d, %s", status, out)
	}
	ended := c.await("its end", func(jobs map[train.JobID]train.Job) bool { return jobs["cifar"].State.Terminal() })["cifar"]
	if ended.State != train.StateSucceeded || ended.EpochsDone != epochs || ended.Attempt != 2 {
		t.Errorf("%s after %d epochs in %d attempts: %s", ended.State, ended.EpochsDone, ended.Attempt, ended.Message)
	}
	_, log := c.command("logs", "cifar")
	loads := regexp.MustCompile(`load_epoch=(\w+)`).FindAllStringSubmatch(log, -1)
	if len(loads) != 2 || loads[0][1] != "None" {
		t.Fatalf("loads %q; want none, and then an epoch:\n%s", loads, log)
	}
	if from, err := strconv.Atoi(loads[1][1]); err != nil || from < 3 {
		t.Errorf("it went on from epoch %q", loads[1][1])
	}
	_, metrics := c.command("get", "cifar", "metrics.csv", "--to", "-")
	if last := regexp.MustCompile(`(?m)^` + strconv.Itoa(epochs) + `,.*$`).FindString(metrics); last == "" {
		t.Errorf("metrics without epoch %d:\n%s", epochs, metrics)
	}
}
