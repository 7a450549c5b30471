package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// script prints where and with what it runs, and exits with its argument. Neither it nor the process that started it
// has the token of its caller's shell, which is that of `switchyard up` too.
const script = `echo "in $PWD with ${VIRTUAL_ENV:-none} and ${FROM_FILE:-nothing}, ${CHOSEN:-none} chosen"
env | grep -c API_TOKEN; tr '\0' '\n' < /proc/$PPID/environ | grep -c API_TOKEN; exit ${1:-0}`

// A script of a person who knows nothing of Switchyard runs in the folder and the virtual environment of its caller;
// its output and its exit code are those of the command. The scheduler is started if none answers.
func TestRunStartsASchedulerAndIsTheScript(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	home := filepath.Join(c.dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"say.sh": script, "vars": "# of a file\nFROM_FILE=a file\n"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := bustest.FreePort(t)
	place := filepath.Join(c.dir, "context.json")
	// An earlier scheduler has left its address behind.
	if err := installation.WriteContext(place, installation.Context{NATS: fmt.Sprint("nats://127.0.0.1:", port), PID: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if up, err := installation.ReadContext(place); err == nil && up.PID > 1 {
			_ = syscall.Kill(up.PID, syscall.SIGKILL)
		}
	})
	run := func(args ...string) (int, string) {
		cmd := exec.CommandContext(c.ctx, filepath.Join(binaries, "switchyard"), append([]string{"run"}, args...)...)
		cmd.Dir = home
		cmd.Env = append(c.environ(), "XDG_STATE_HOME="+c.dir, fmt.Sprint("SWITCHYARD_PORT=", port), "SWITCHYARD_CPU_SLOTS=2", "VIRTUAL_ENV=/venv", "SWITCHYARD_NATS=",
			"API_TOKEN=secret", "CHOSEN=by name")
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	code, out := run("--env-file", "vars", "-e", "CHOSEN", "sh", "say.sh")
	for _, want := range []string{"no scheduler answers: started `switchyard up`", "in " + home + " with /venv and a file, by name chosen\n0\n0\n", "succeeded: ended after"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("exit code %d, no %q in %s", code, want, out)
		}
	}
	if code, out = run("sh", "say.sh", "7"); code != 7 || strings.Contains(out, "no scheduler") || !strings.Contains(out, "failed") {
		t.Errorf("exit code %d, want 7: %s", code, out)
	}
	c.port = port
	c.connect()
	if code, out = c.command("submit", "--min-devices", "64", "--strategy", "all_reduce", "--work-dir", home, "--", "true"); code != 3 || !strings.Contains(out, "TooFewDevices min_devices: want at least 64 on one node") {
		t.Errorf("exit code %d, want 3 for a job that can never run here: %s", code, out)
	}
	if code, out = run("-d", "sleep", "600"); code != 0 || !strings.Contains(out, "job sleep-") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	jobs := c.await("a plain program is running", func(jobs map[train.JobID]train.Job) bool {
		for _, j := range jobs {
			if j.Spec.Name == "sleep" {
				return j.State == train.StateRunning
			}
		}
		return false
	})
	for id, j := range jobs {
		if j.Spec.Name == "say" && (j.State == train.StateSucceeded) != (len(j.Spec.Command) == 2) {
			t.Errorf("%s is %s", id, j.State)
		}
	}
	if code, out = c.command("cancel", "sleep"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}
