// Package mps finds the daemon of NVIDIA's Multi-Process Service, through which several processes use one GPU at the
// same time, each within its own limits. The operator starts the daemon, or has a Supervisor start it.
package mps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// defaultDir is where the daemon has its pipes unless its environment names another folder.
	defaultDir = "/tmp/nvidia-mps"
	dirName    = "CUDA_MPS_PIPE_DIRECTORY"
	control    = "nvidia-cuda-mps-control"
	// timeout is how long the daemon may take to answer, interval how often it is asked.
	timeout  = 2 * time.Second
	interval = 30 * time.Second
	// maxMisses is how many questions in a row may go unanswered before the daemon counts as gone: on a busy machine
	// an answer is late now and then.
	maxMisses = 3
)

// Daemon is the daemon of a node, whether or not it runs.
type Daemon struct {
	dir string
	// every is how often it is asked.
	every time.Duration

	mu     sync.Mutex
	runs   bool
	misses int
	asked  time.Time
	asking sync.Mutex
}

// Find takes the folder of the daemon's pipes from the operator's setting, the environment, or NVIDIA's default.
func Find(dir string) *Daemon {
	return &Daemon{dir: filepath.Clean(cmp.Or(dir, os.Getenv(dirName), defaultDir)), every: interval}
}

// Dir returns the folder of the pipes if the daemon answers, else an empty string.
func (d *Daemon) Dir() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.runs {
		return ""
	}
	return d.dir
}

// Ask asks the daemon at intervals whether it is there.
func (d *Daemon) Ask(ctx context.Context, now time.Time) {
	d.asking.Lock()
	defer d.asking.Unlock()
	if !d.asked.IsZero() && now.Sub(d.asked) < d.every {
		return
	}
	runs, certain := d.answers(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = now
	if !certain {
		if d.misses++; d.misses < maxMisses {
			return
		}
	}
	d.runs, d.misses = runs, 0
}

// askAgain asks at once.
func (d *Daemon) askAgain(ctx context.Context, now time.Time) {
	d.asking.Lock()
	d.asked = time.Time{}
	d.asking.Unlock()
	d.Ask(ctx, now)
}

// silent reports whether a daemon is there that has not answered lately, but may yet.
func (d *Daemon) silent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.misses > 0
}

// answers reports whether the daemon lists its servers; there may be none while it has no client. The result is
// uncertain if nothing says that there is no daemon.
func (d *Daemon) answers(ctx context.Context) (runs, certain bool) {
	if info, err := os.Stat(d.dir); err != nil || !info.IsDir() {
		return false, true
	}
	out, err := d.run(ctx, timeout, "get_server_list\n", nil)
	if errors.Is(err, exec.ErrNotFound) {
		return false, true
	}
	none := bytes.Contains(out, []byte("Cannot find"))
	return err == nil && !none, err == nil || none
}

// run runs the control program with its commands as input, and returns what it prints.
func (d *Daemon) run(ctx context.Context, limit time.Duration, input string, env []string, args ...string) ([]byte, error) {
	path, err := exec.LookPath(control)
	if err != nil {
		return nil, fmt.Errorf("find the control program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(append(os.Environ(), dirName+"="+d.dir), env...)
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = timeout
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("run %s: %w", control, err)
	}
	return out, nil
}
