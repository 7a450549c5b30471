// Package slurmd starts Slurm for tests: a cluster of one machine, with Debian's programs.
package slurmd

import (
	"context"
	"crypto/rand"
	"errors"
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

// Missing returns why Slurm cannot run here, or nil.
func Missing() error {
	for _, program := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("no Slurm (Debian: apt-get install slurm-wlm): %w", err)
		}
	}
	if os.Geteuid() != 0 {
		return errors.New("not root, who alone can run Slurm's daemons")
	}
	return nil
}

// Start runs a cluster of this one machine with default settings, and returns the environment of its commands.
func Start(b testing.TB) []string {
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
	conf := fmt.Sprintf(`ClusterName=test
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
		run(b, environ, in(words[0]+".out"), words)
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

// run starts a daemon of Slurm, which ends with the test.
func run(b testing.TB, environ []string, output string, words []string) {
	b.Helper()
	log, err := os.Create(output)
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
