package web

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/programs"
	"github.com/switchyard-dl/switchyard/test/web/chromium"
)

// binaries is the folder of the built programs.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if _, err := chromium.Find(); err != nil {
			return m.Run() // all tests skip themselves
		}
		dir, err := os.MkdirTemp("", "switchyard-page-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binaries = dir
		if err := programs.Build(dir, append(programs.All(), "services/web/cmd/web")...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// yard is a `switchyard up`, and a browser that looks at its page.
type yard struct {
	*screen
	t      *testing.T
	ctx    context.Context //nolint:containedctx // the deadline of one test
	dir    string
	listen string
	shared string
	up     *exec.Cmd
}

// newYard starts both, or skips the test if there is no browser.
func newYard(t *testing.T) *yard {
	t.Helper()
	if _, err := chromium.Find(); err != nil {
		t.Skip(err)
	}
	programs.Look()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	dir, err := os.MkdirTemp("", "switchyard-page-test-") // other users of the machine pass through it to the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	y := &yard{t: t, ctx: ctx, dir: dir, listen: "127.0.0.1:0", shared: filepath.Join(dir, "web.sock")}
	y.start()
	t.Cleanup(func() {
		y.kill()
		y.killJobs()
	})
	y.screen = newScreen(ctx, t)
	return y
}

// start runs `switchyard up` and waits until its page is served.
func (y *yard) start() {
	y.t.Helper()
	log, err := os.OpenFile(filepath.Join(y.dir, "up.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		y.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	y.up = exec.CommandContext(y.ctx, filepath.Join(binaries, "switchyard-server"), "up", "--config", os.DevNull, "--data-dir", filepath.Join(y.dir, "data"), "--port", "0", "--http", "127.0.0.1:0", "--allow-root", y.dir)
	y.up.Env = append(y.environ(), "SWITCHYARD_SIM_GPUS=2", "SWITCHYARD_WEB_LISTEN="+y.listen, "SWITCHYARD_WEB_SHARED_SOCKET="+y.shared)
	y.up.Stderr = log
	if err := y.up.Start(); err != nil {
		y.t.Fatal(err)
	}
	for range tick.Every(y.ctx, 50*time.Millisecond) {
		if link := y.try("open"); strings.HasPrefix(link, "http://") {
			y.listen = strings.TrimPrefix(strings.Split(link, "/#")[0], "http://") // also after the next start
			return
		}
	}
	text, _ := os.ReadFile(filepath.Join(y.dir, "up.log"))
	y.t.Fatalf("no page in time:\n%s", text)
}

func (y *yard) environ() []string {
	env := []string{"SWITCHYARD_CONTEXT=" + filepath.Join(y.dir, "context.json"), "HOME=" + y.dir}
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "SWITCHYARD_") && !strings.HasPrefix(pair, "HOME=") {
			env = append(env, pair)
		}
	}
	return env
}

// kill ends `switchyard up` as a crash does. Jobs go on.
func (y *yard) kill() {
	_ = y.up.Process.Signal(syscall.SIGKILL)
	_ = y.up.Wait()
}

// killJobs ends what runs below the folder of the test.
func (y *yard) killJobs() {
	for range tick.Every(context.WithoutCancel(y.ctx), 20*time.Millisecond) {
		folders, _ := filepath.Glob("/proc/[0-9]*/environ")
		left := 0
		for _, file := range folders {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), y.dir) {
				var pid int
				if _, err := fmt.Sscanf(file, "/proc/%d/environ", &pid); err == nil && pid != os.Getpid() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					left++
				}
			}
		}
		if left == 0 {
			return
		}
	}
}

func (y *yard) try(args ...string) string {
	cmd := exec.CommandContext(y.ctx, filepath.Join(binaries, "switchyard"), args...)
	cmd.Env, cmd.Dir = y.environ(), y.dir
	out, _ := cmd.Output()
	return strings.TrimSpace(string(out))
}

// command runs `switchyard`.
func (y *yard) command(args ...string) string {
	y.t.Helper()
	cmd := exec.CommandContext(y.ctx, filepath.Join(binaries, "switchyard"), args...)
	cmd.Env, cmd.Dir = y.environ(), y.dir
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		y.t.Fatalf("switchyard %q: %v\n%s%s", args, err, out, told.String())
	}
	return strings.TrimSpace(string(out))
}

// submit submits a job under an id.
func (y *yard) submit(id string, args ...string) {
	y.t.Helper()
	y.command(append([]string{"submit", "--id", id}, args...)...)
}

// job reads the record of a job.
func (y *yard) job(id string) train.Job {
	y.t.Helper()
	var d struct {
		Job train.Job `json:"job"`
	}
	if err := json.Unmarshal([]byte(y.command("describe", id, "-o", "json")), &d); err != nil {
		y.t.Fatal(err)
	}
	return d.Job
}
