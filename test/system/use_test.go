package system

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// state returns a condition: the job is in one of these states.
func state(id train.JobID, want ...train.State) func(map[train.JobID]train.Job) bool {
	return func(jobs map[train.JobID]train.Job) bool { return slices.Contains(want, jobs[id].State) }
}

// publish sends a message as any NATS client would, and waits until the server has stored it.
func (c *cluster) publish(subject, body string) {
	c.t.Helper()
	c.publishAs(identity.User, subject, body)
}

func (c *cluster) publishAs(role, subject, body string) {
	c.t.Helper()
	nc, err := c.raw(role, nats.Timeout(time.Minute))
	if err != nil {
		c.t.Fatal(err)
	}
	defer nc.Close()
	reply, err := nc.Request(subject, []byte(body), time.Minute)
	if err != nil {
		c.t.Fatalf("publish %s: %v", subject, err)
	}
	if strings.Contains(string(reply.Data), `"error"`) {
		c.t.Fatalf("publish %s: %s", subject, reply.Data)
	}
}

// refused publishes a message that the client library itself must refuse.
func (c *cluster) refused(subject, body string) {
	c.t.Helper()
	nc, err := c.raw(identity.User, nats.Timeout(time.Minute))
	if err != nil {
		c.t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.Publish(subject, []byte(body)); !errors.Is(err, nats.ErrMaxPayload) {
		c.t.Errorf("publish %s of %d bytes: %v, want %v", subject, len(body), err, nats.ErrMaxPayload)
	}
}

func TestAnyNATSClientSubmitsAndRubbishBlocksNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	good := `{"name":"good","command":["sh","-c","echo hello from $SWITCHYARD_JOB"],"batch_size":1,"training_set_size":1,"max_epochs":1}`
	deep := strings.Repeat(`{"env":`, 100) + "1" + strings.Repeat("}", 100)
	for subject, body := range map[string]string{
		"yard.job.notjson.submitted.v1":      "hello",
		"yard.job.nan.submitted.v1":          `{"name":"nan","command":["true"],"batch_size":1,"training_set_size":1,"max_epochs":1,"estimated_hours":NaN}`,
		"yard.job.negative.submitted.v1":     `{"name":"negative","command":["true"],"batch_size":-4,"training_set_size":-1,"max_epochs":-1,"estimated_memory_mib":-5}`,
		"yard.job.unknown.submitted.v1":      `{"name":"unknown","command":["true"],"batchsize":1,"training_set_size":1,"max_epochs":1}`,
		"yard.job.twice.submitted.v1":        `{"name":"a","name":"b","command":["true"],"batch_size":1,"training_set_size":1,"max_epochs":1}`,
		"yard.job.deep.submitted.v1":         deep,
		"yard.job.large.submitted.v1":        `{"name":"` + strings.Repeat("x", event.MaxBodyBytes) + `"}`,
		"yard.job.newer.submitted.v9":        good,
		"yard.job.a/b.submitted.v1":          good,
		"yard.job.ghost.cancel_requested.v1": `{}`,
	} {
		c.publish(subject, body)
	}
	for subject, body := range map[string]string{ // the bus takes these from nobody but the operator
		"yard.job.a.b.submitted.v1":      good,
		"yard.job.nobody.succeeded.v1":   `{"attempt":1}`,
		"yard.job.nobody.frobnicated.v1": `{}`,
	} {
		c.publishAs(identity.Operator, subject, body)
	}
	c.refused("yard.job.larger.submitted.v1", strings.Repeat("x", 10<<20))
	c.publish("yard.job.good.submitted.v1", good)
	jobs := c.await("the good job", state("good", train.StateSucceeded))
	for id, want := range map[train.JobID]string{
		"notjson": "JSON", "nan": "NaN", "negative": "batch_size", "unknown": "batch_size", "twice": "name", "deep": "", "large": "", "newer": "v",
	} {
		j := jobs[id]
		text := j.Message
		for _, r := range j.Blockers {
			text += "; " + r.String()
		}
		if j.State != train.StateRejected || !strings.Contains(text, want) {
			t.Errorf("job %s: %s %q, want rejected with a word of %q", id, j.State, text, want)
		}
	}
	if text := jobs["negative"].Blockers; len(text) < 4 {
		t.Errorf("the negative job has four faults, reported are %v", text)
	}
	code, poison := c.command("events", "--poison")
	for _, want := range []string{"yard.job.a.b.submitted.v1", "nobody", "ghost"} {
		if code != 0 || !strings.Contains(poison, want) {
			t.Errorf("events --poison (exit %d) lacks %s:\n%s", code, want, poison)
		}
	}
	if code, out := c.command("logs", "good"); code != 0 || !strings.Contains(out, "hello from good") {
		t.Errorf("logs (exit %d): %s", code, out)
	}
}

func TestTheSameSubmissionAgainChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	body := `{"name":"once","command":["true"],"batch_size":1,"training_set_size":1,"max_epochs":1}`
	c.publish("yard.job.once.submitted.v1", body)
	c.await("its end", state("once", train.StateSucceeded))
	c.publish("yard.job.once.submitted.v1", body)
	c.publish("yard.job.once.submitted.v1",
		`{"max_epochs":1,"training_set_size":1,"batch_size":1,"command":["true"],"name":"once"}`)
	c.publish("yard.job.once.submitted.v1", strings.Replace(body, "true", "false", 1))
	c.publish("yard.job.after.submitted.v1", body)
	jobs := c.await("the job after", state("after", train.StateSucceeded))
	if jobs["once"].State != train.StateSucceeded || jobs["once"].Attempt != 1 {
		t.Fatalf("%+v", jobs["once"])
	}
	if n := c.terminals()["once"]; n != 1 {
		t.Errorf("%d terminal facts", n)
	}
	_, events := c.command("events", "--all", "--once", "--job", "once")
	if got := strings.Count(events, "conflicted"); got != 1 {
		t.Errorf("%d conflicts, want the 1 of the different body:\n%s", got, events)
	}
}

func TestCancelLeavesNoProcess(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up")
	c.connect()
	// The job ignores SIGTERM and has a child in its own session.
	script := `trap "" TERM; setsid sleep 300 & while :; do sleep 1; done`
	body, err := json.Marshal(train.Spec{
		Name: "stubborn", Command: []string{"bash", "-c", script}, Env: map[string]string{"TRAIN_LEDGER": c.ledger}, BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.publish("yard.job.stubborn.submitted.v1", string(body))
	c.await("its processes", func(map[train.JobID]train.Job) bool { return len(c.trainers()) >= 2 })
	if code, out := c.command("cancel", "stubborn"); code != 0 {
		t.Fatalf("cancel: exit %d: %s", code, out)
	}
	c.await("its end", state("stubborn", train.StateCancelled))
	if left := c.trainers(); len(left) > 0 {
		t.Errorf("processes %v are left over", left)
	}
}

// debianTorch returns the interpreter with PyTorch, or "".
func debianTorch() string {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(python); err == nil && exec.Command(path, "-c", "import torch").Run() == nil {
			return path
		}
	}
	return ""
}

func TestTheGuidesScriptIsPreemptedAndGoesOn(t *testing.T) {
	python := debianTorch()
	if python == "" {
		t.Skip("python3 has no torch here (Debian: apt-get install python3-torch)")
	}
	examples, err := filepath.Abs("../../examples/seed004")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.env = []string{"SWITCHYARD_JOB_ENVIRONMENT=PYTHONPATH", "PYTHONPATH=" + filepath.Join(examples, "sitecustomize"), "PATH=" + filepath.Dir(python) + ":/usr/bin:/bin"}
	c.flags = []string{"--allow-root", examples, "--allow-root", c.dir, "--cpu-slots", "1", "--python-path", filepath.Join(examples, "../../libs/python")}
	c.start("up")
	c.connect()
	compat := filepath.Join(c.dir, "bin")
	if code, out := c.command("compat", "install", compat); code != 0 {
		t.Fatalf("compat install: exit %d: %s", code, out)
	}
	code, out := c.program(filepath.Join(compat, "run-scheduler"), "--script_path", "/custom/pytorch.py", "--custom_dir", examples,
		"--batch_size", "2", "--training_set_size", "4000", "--max_epochs", "12", "--is_single_gpu", "True", "--disable_gpu_sharing", "False",
		"--estimated_memory", "100", "--est_nhours", "2", "guide")
	if code != 0 {
		t.Fatalf("run-scheduler: exit %d: %s", code, out)
	}
	id := train.JobID(strings.TrimSpace(out))
	c.await("two of its epochs", func(jobs map[train.JobID]train.Job) bool { return jobs[id].EpochsDone >= 2 })
	if code, out := c.command("submit", "--name", "urgent", "--id", "urgent", "--priority", "90", "--work-dir", c.dir, "--", "true"); code != 0 {
		t.Fatalf("submit: exit %d: %s", code, out)
	}
	jobs := c.await("the end of the guide's script", func(jobs map[train.JobID]train.Job) bool { return jobs[id].State.Terminal() })
	j := jobs[id]
	if j.State != train.StateSucceeded || j.EpochsDone != 12 || j.Preemptions != 1 || j.Restarts != 1 {
		t.Errorf("%s after %d epochs, %d preemptions, %d restarts: %s %s", j.State, j.EpochsDone, j.Preemptions,
			j.Restarts, j.Message, j.LogTail)
	}
	if jobs["urgent"].State != train.StateSucceeded {
		t.Errorf("urgent: %s", jobs["urgent"].State)
	}
	if code, out := c.program(filepath.Join(compat, "scheduler-get-logs"), string(id)); code != 0 || strings.Count(out, "Scheduler assigned 1 gpus") != 2 {
		t.Errorf("scheduler-get-logs: exit %d, want the script's greeting of both attempts: %s", code, out)
	}
	if code, out := c.program(filepath.Join(compat, "scheduler-state"), "--all_users", "--extended"); code != 0 || !strings.Contains(out, "/custom/pytorch.py") {
		t.Errorf("scheduler-state: exit %d: %s", code, out)
	}
}
