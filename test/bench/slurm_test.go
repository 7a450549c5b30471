package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/test/slurm/slurmd"
)

// beside is how many scripts are submitted to each.
const beside = 20

// BenchmarkBesideSlurm takes the time from the command that submits a script until the script runs, with Slurm's
// default settings and with `switchyard up`, by turns on this machine: medians.
func BenchmarkBesideSlurm(b *testing.B) {
	if err := slurmd.Missing(); err != nil {
		b.Skip("no Slurm, or not root (Debian: apt-get install slurm-wlm)")
	}
	slurm := slurmd.Start(b)
	i := install(b)
	i.start()
	said := filepath.Join(b.TempDir(), "said")
	script := filepath.Join(b.TempDir(), "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ndate +%s%N >"+said+"\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	both := map[string]func(context.Context) *exec.Cmd{
		"slurm": func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, "sbatch", "--output=/dev/null", script)
			cmd.Env = slurm
			return cmd
		},
		"switchyard": func(ctx context.Context) *exec.Cmd {
			return i.command(ctx, "submit", "--work-dir", filepath.Dir(script), "--", script)
		},
	}
	runs, commands := map[string][]time.Duration{}, map[string][]time.Duration{}
	for b.Loop() {
		for range beside {
			for name, command := range both {
				began := time.Now()
				if out, err := command(b.Context()).CombinedOutput(); err != nil {
					b.Fatalf("%s: %v\n%s", name, err, out)
				}
				commands[name] = append(commands[name], time.Since(began))
				runs[name] = append(runs[name], written(b, said).Sub(began))
				tick.Pause(b.Context(), quiet)
			}
		}
	}
	for name := range both {
		b.ReportMetric(1000*median(commands[name]).Seconds(), name+"-command-ms")
		b.ReportMetric(1000*median(runs[name]).Seconds(), name+"-runs-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// written waits for the time that a script writes into a file, and removes the file.
func written(b *testing.B, path string) time.Time {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for range tick.Every(ctx, time.Millisecond) {
		var nanos int64
		text, _ := os.ReadFile(path)
		if _, err := fmt.Sscanf(string(text), "%d\n", &nanos); err == nil {
			if err := os.Remove(path); err != nil {
				b.Fatal(err)
			}
			return time.Unix(0, nanos)
		}
	}
	b.Fatal("the script did not run in a minute")
	return time.Time{}
}
