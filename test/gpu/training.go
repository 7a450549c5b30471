package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// container runs the driver's tool in a container that has one GPU.
func container(ctx context.Context, b *bench) (string, error) {
	const patience = 10 * time.Second
	found, trouble := engine.Find(ctx, patience)
	if found == engine.None {
		return "", notTried(trouble)
	}
	program := string(found)
	if err := exec.CommandContext(ctx, program, "image", "inspect", b.image).Run(); err != nil {
		if out, err := exec.CommandContext(ctx, program, "pull", b.image).CombinedOutput(); err != nil {
			return "", notTried(fmt.Sprintf("%s cannot pull %s: %s", program, b.image, out))
		}
	}
	if err := b.submit(ctx, "inside", map[string]any{"command": []string{"nvidia-smi", "-L"}, "image": b.image}); err != nil {
		return "", err
	}
	j, err := b.reach(ctx, "inside", "ends", ended)
	if err != nil {
		return "", err
	}
	out := b.output(ctx, "inside")
	if d := b.device(j.Attempt.Devices[0]); strings.Count(out, "GPU-") != 1 || !strings.Contains(out, d.UUID) {
		return "", fmt.Errorf("on %s with UUID %s: %s", d.ID(), d.UUID, out)
	}
	return fmt.Sprintf("%s, %s: %s", program, b.image, out), nil
}

// exchange trains on all GPUs at once.
func exchange(ctx context.Context, b *bench) (string, error) {
	if b.python == "" {
		return "", notTried("no python3 here has a PyTorch that sees the GPU")
	}
	n := len(b.devices)
	keys := b.training(3)
	keys["min_devices"], keys["max_devices"] = n, n
	if err := b.submit(ctx, "ddp", keys); err != nil {
		return "", err
	}
	j, err := b.reach(ctx, "ddp", "ends", ended)
	if err != nil {
		return "", err
	}
	out := b.output(ctx, "ddp")
	if want := fmt.Sprintf("world %d backend nccl", n); j.Job.State != train.StateSucceeded || !strings.Contains(out, want) {
		return "", fmt.Errorf("%s, printed %q", j.Job.State, out)
	}
	return fmt.Sprintf("%d processes, %d epochs", n, j.Job.EpochsDone), nil
}

// training is a job that trains a network: with PyTorch on the GPUs, else the Go trainer, which has GPUs but computes
// on processors.
func (b *bench) training(epochs int) map[string]any {
	keys := map[string]any{"max_epochs": epochs, "strategy": "all_reduce", "launch": "per_device", "training_set_size": 2560}
	if b.python == "" {
		keys["command"] = []string{filepath.Join(b.bin, "switchyard-trainer"), "-hidden", "16", "-slow-by", "20ms"}
		return keys
	}
	keys["command"] = []string{b.python, filepath.Join(b.dir, "train_ddp.py")}
	return keys
}

// elastic lets a training begin with the one GPU that is free, grow when the others become free, and make room for
// jobs of a higher priority.
func elastic(ctx context.Context, b *bench) (string, error) {
	n := len(b.devices)
	var kept []string
	for i := range n - 1 {
		id := fmt.Sprintf("before%d", i)
		if err := b.submit(ctx, id, map[string]any{"command": []string{"sleep", "3600"}}); err != nil {
			return "", err
		}
		if _, err := b.reach(ctx, id, "runs", runs); err != nil {
			return "", err
		}
		kept = append(kept, id)
	}
	keys := b.training(100_000)
	keys["min_devices"], keys["max_devices"] = 1, n
	if err := b.submit(ctx, "grows", keys); err != nil {
		return "", err
	}
	if _, err := b.reach(ctx, "grows", "trains on one GPU", func(j job) bool { return runs(j) && j.Job.EpochsDone >= 2 }); err != nil {
		return "", err
	}
	if err := b.cancel(ctx, kept...); err != nil {
		return "", err
	}
	story := "1 GPU"
	if n > 1 {
		j, err := b.reach(ctx, "grows", "trains on more", func(j job) bool { return runs(j) && len(j.Attempt.Devices) > 1 })
		if err != nil {
			return story, errors.Join(err, b.cancel(ctx, "grows"))
		}
		story += fmt.Sprintf(", %d after epoch %d", len(j.Attempt.Devices), j.Job.EpochsDone)
	} else {
		story += " (there is no other to grow to)"
	}
	return b.preempt(ctx, story)
}

// preempt takes all GPUs from the training, and gives them back.
func (b *bench) preempt(ctx context.Context, story string) (string, error) {
	n := len(b.devices)
	before := b.describe(ctx, "grows")
	if err := b.submit(ctx, "first", map[string]any{"command": []string{"sleep", "3600"}, "priority": 100, "min_devices": n, "max_devices": n, "strategy": "all_reduce"}); err != nil {
		return story, err
	}
	_, err := b.reach(ctx, "first", "runs", runs)
	if err == nil {
		_, err = b.reach(ctx, "grows", "is preempted", func(j job) bool { return j.Job.State == train.StatePreempted })
	}
	err = errors.Join(err, b.cancel(ctx, "first"))
	if err != nil {
		return story, errors.Join(err, b.cancel(ctx, "grows"))
	}
	after, err := b.reach(ctx, "grows", "goes on", func(j job) bool { return runs(j) && j.Job.EpochsDone > before.Job.EpochsDone+1 })
	what := "with the Go trainer on processors"
	if b.python != "" {
		what = "with PyTorch"
	}
	story += fmt.Sprintf(", preempted, went on to epoch %d in attempt %d, %s", after.Job.EpochsDone, after.Attempt.Number, what)
	return story, errors.Join(err, b.cancel(ctx, "grows"))
}
