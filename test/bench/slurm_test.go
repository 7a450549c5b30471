package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// beside is how many scripts are submitted to each.
const beside = 20

// BenchmarkBesideSlurm takes the time from the command that submits a script until the script runs, with Slurm's
// default settings and with `switchyard up`, by turns on this machine: medians.
func BenchmarkBesideSlurm(b *testing.B) {
	for _, program := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			b.Skip("no Slurm, or not root (Debian: apt-get install slurm-wlm)")
		}
	}
	slurm := startSlurm(b)
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
		"switchyard": func(ctx context.Context) *exec.Cmd { return i.command(ctx, "submit", "--", script) },
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

// startSlurm runs a cluster of this one machine with default settings, and returns the environment of its commands.
func startSlurm(b *testing.B) []string {
	b.Helper()
	dir, err := os.MkdirTemp("", "slurm") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	host, err := os.Hostname()
	if err != nil {
		b.Fatal(err)
	}
	key := make([]byte, 1024)
	_, _ = rand.Read(key)
	in := func(name string) string { return filepath.Join(dir, name) }
	conf := fmt.Sprintf(`ClusterName=bench
SlurmctldHost=%[1]s(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=%[2]s
CredType=cred/munge
SlurmctldPort=%[3]d
SlurmdPort=%[4]d
StateSaveLocation=%[5]s
SlurmdSpoolDir=%[6]s
SlurmctldPidFile=%[7]s
SlurmdPidFile=%[8]s
ProctrackType=proctrack/linuxproc
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=%[9]d State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
`, host, in("munge"), bustest.FreePort(b), bustest.FreePort(b), in("state"), in("spool"), in("ctld.pid"), in("d.pid"), runtime.NumCPU())
	for name, text := range map[string]string{"key": string(key), "slurm.conf": conf} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{"state", "spool"} {
		if err := os.Mkdir(in(name), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	environ := append(os.Environ(), "SLURM_CONF="+in("slurm.conf"))
	for _, words := range [][]string{
		{"munged", "--foreground", "--force", "--socket=" + in("munge"), "--key-file=" + in("key"), "--pid-file=" + in("munge.pid"), "--seed-file=" + in("seed"), "--log-file=" + in("munge.log")},
		{"slurmctld", "-D"},
		{"slurmd", "-D"},
	} {
		log, err := os.Create(in(words[0] + ".out"))
		if err != nil {
			b.Fatal(err)
		}
		daemon := exec.CommandContext(b.Context(), words[0], words[1:]...)
		daemon.Env, daemon.Stdout, daemon.Stderr = environ, log, log
		if err := daemon.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = daemon.Process.Kill()
			_ = daemon.Wait()
			_ = log.Close()
		})
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for range tick.Every(ctx, 200*time.Millisecond) {
		ask := exec.CommandContext(ctx, "sinfo", "--noheader", "--format=%t")
		ask.Env = environ
		if out, err := ask.Output(); err == nil && string(out) == "idle\n" {
			return environ
		}
	}
	for _, name := range []string{"munged", "slurmctld", "slurmd"} {
		text, _ := os.ReadFile(in(name + ".out"))
		b.Logf("%s:\n%s", name, text)
	}
	b.Fatal("Slurm's node is not idle in a minute")
	return nil
}
