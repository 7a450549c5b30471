package jobs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// trainer returns the words of submit, rerun and run for a job of the trainer.
func trainer(verb string, epochs int, flags ...string) []string {
	words := []string{verb, "--image", image, "--batch-size", "32", "--training-set-size", "8000", "--max-epochs", fmt.Sprint(epochs), "--max-devices", "1"}
	return append(append(words, flags...), "--", "/trainer", "-hidden", "64")
}

// refused returns what a command that fails says.
func (y *yard) refused(args ...string) string {
	y.t.Helper()
	out, err := exec.CommandContext(y.ctx, filepath.Join(binaries, "switchyard"), append([]string{"--nats", y.url(), "--keys", string(y.keys())}, args...)...).CombinedOutput()
	if err == nil {
		y.t.Errorf("switchyard %v ended well:\n%s", args, out)
	}
	return string(out)
}

func (y *yard) says(id train.JobID, words string) {
	y.t.Helper()
	y.job(id, words, func(j train.Job) bool { return strings.Contains(j.Message, words) })
}

// The verbs of people reach pods: one job is held, paused, queued again, cancelled and resumed, and goes on from its
// checkpoint each time.
func TestVerbs(t *testing.T) {
	const endless = 1_000_000
	y := newYard(t)
	y.start("planner")
	y.switchyard("node", "cordon", "node1")
	y.switchyard(trainer("submit", endless, "--id", "v")...)
	y.switchyard("hold", "v")
	y.switchyard("node", "resume", "node1")
	y.says("v", "held")
	y.switchyard("release", "v")
	y.running("v", 1)
	y.job("v", "two epochs", epochs(2))

	y.switchyard("pause", "v")
	y.attempt("v", "has left", func(a train.Attempt) bool { return a.Number == 1 && a.Outcome == train.OutcomePreempted })
	y.says("v", "paused")
	y.until("no pod is left", func() bool {
		return y.kubectl("get", "pods", "-n", y.namespace, "-o", "name") == ""
	})
	y.switchyard("resume", "v")
	if a := y.running("v", 2); a.StartedEpochs < 2 {
		t.Errorf("attempt 2 begins after %d epochs, want two or more", a.StartedEpochs)
	}
	y.job("v", "four epochs", epochs(4))
	y.switchyard("requeue", "v")
	third := y.running("v", 3)
	if third.StartedEpochs < 4 {
		t.Errorf("attempt 3 begins after %d epochs, want four or more", third.StartedEpochs)
	}
	y.job("v", "an epoch of attempt 3", epochs(third.StartedEpochs+1))
	y.switchyard("cancel", "v")
	y.state("v", train.StateCancelled)
	y.switchyard("resume", "v")
	if a := y.running("v", 4); a.StartedEpochs < 4 {
		t.Errorf("attempt 4 begins after %d epochs, want four or more", a.StartedEpochs)
	}
	y.until("all attempts in the log", func() bool {
		log := y.switchyard("logs", "v", "--tail", "1000")
		return strings.Contains(log, "attempt 3 of v") && strings.Contains(log, "attempt 4 of v") && strings.Contains(log, "epoch 5/")
	})
	if csv := y.switchyard("get", "v", "metrics.csv", "--to", "-"); !strings.Contains(csv, "epoch") || strings.Count(csv, "\n") < 4 {
		t.Errorf("metrics.csv:\n%s", csv)
	}
	if out := y.refused("get", "v"); !strings.Contains(out, "the files of pods stay in their volumes") {
		t.Errorf("get says:\n%s", out)
	}
	y.switchyard("rerun", "v", "--id", "w")
	y.running("w", 1)
	y.switchyard("cancel", "v", "w")
	y.nothingLeft()
}

// A time limit, dependencies, retries and what a job asks of devices, processors and memory hold for pods as well, and
// run ends with the job.
func TestConditionsOfJobs(t *testing.T) {
	y := newYard(t)
	y.start("planner")
	y.switchyard(trainer("submit", 1_000_000, "--id", "long", "--time-limit", "5s", "--device", "gpu", "--gpu", "simulated", "--gpu-memory", "8GiB", "--cpus", "1", "--memory", "300MiB")...)
	y.switchyard(trainer("submit", 2, "--id", "then", "--after", "failed:long")...)
	if out := y.refused(trainer("submit", 2, "--gpu", "H100")...); !strings.Contains(out, "each GPU here is another model: simulated") {
		t.Errorf("submit says:\n%s", out)
	}
	y.running("long", 1)
	limits := y.kubectl("get", "pod", "long-1-0", "-n", y.namespace, "-o", "jsonpath={.spec.containers[0].resources.limits.cpu} {.spec.containers[0].resources.limits.memory} {.spec.containers[0].resources.requests.memory}")
	if limits != "1 300Mi 300Mi" {
		t.Errorf("the pod's processors and memory are %s", limits)
	}
	if _, err := y.attempts.Get(y.ctx, "then"); err == nil {
		t.Error("the job that waits for the other one has an attempt")
	}
	y.state("long", train.StateFailed)
	y.says("long", "it has reached its time limit of")
	y.state("then", train.StateSucceeded)
	wrong := trainer("submit", 2, "--id", "wrong", "--retries", "1")
	y.switchyard(append(wrong[:len(wrong)-1], "-1")...)
	if j := y.state("wrong", train.StateFailed); j.Attempt != 2 || !strings.Contains(j.Message, "retries before: 1") {
		t.Errorf("attempt %d: %s", j.Attempt, j.Message)
	}
	if out := y.switchyard(trainer("run", 2, "--name", "short")...); !strings.Contains(out, "epoch 2/2") {
		t.Errorf("run shows:\n%s", out)
	}
	for words, flags := range map[string][]string{
		"Switchyard sends no signals to the processes of a pod": {"--preempt", "signal", "--checkpoint", "*.pt"},
		"upload": {"--upload", "--work-dir", t.TempDir()},
	} {
		if out := y.refused(trainer("submit", 2, flags...)...); !strings.Contains(out, words) {
			t.Errorf("%v: %s", flags, out)
		}
	}
	y.nothingLeft()
}
