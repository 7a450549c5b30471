package system

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/settings"
)

// The Python client does what the command line does, also while the service web is killed. The tests are in Python,
// and start and kill that service themselves.
func TestThePythonClient(t *testing.T) {
	t.Parallel()
	python := pythonProgram(t)
	c := newCluster(t)
	library, err := filepath.Abs("../../libs/python")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bus", "admission", "profiler", "planner", "executor", "nodeagent", "experiments"} {
		c.env = nil
		if name == "executor" {
			c.env = []string{"SWITCHYARD_PYTHON_PATH=" + library}
		}
		c.start(name)
	}
	c.connect()
	c.eventually("write the context", func() error {
		return installation.WriteContext(filepath.Join(c.dir, "context.json"), installation.Context{NATS: c.url(), Keys: string(c.keys()), DataDir: c.data})
	})
	c.awaitNode()
	words := settings.Words("--nats", c.url(), "--keys", string(c.keys()), "--data-dir", c.data)
	web, err := json.Marshal(append([]string{filepath.Join(binaries, "web")}, words.Flags...))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(c.ctx, python, "-X", "dev", "-W", "error", "-m", "unittest", "-v", "tests.live_client")
	cmd.Dir = c.dir // where the jobs run, too
	cmd.Env = append(append(c.environ(), words.Environ...), "WEB="+string(web), "PYTHONPATH="+library, "SWITCHYARD="+filepath.Join(binaries, "switchyard"), "SWITCHYARD_WEB_LISTEN=127.0.0.1:0", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("Ran 0 tests")) {
		t.Fatalf("%s", out)
	}
	t.Logf("%s", out)
}

// pythonProgram returns a Python, or skips the test.
func pythonProgram(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if found, err := exec.LookPath(python); err == nil {
			return found
		}
	}
	t.Skip("there is no python3 here (Debian: apt-get install python3)")
	return os.DevNull
}
