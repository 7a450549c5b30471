// Package mps finds the daemon of NVIDIA's Multi-Process Service, through which several processes use one GPU at the
// same time, each within its own limits. The operator starts the daemon.
package mps

import (
	"bytes"
	"cmp"
	"context"
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

	mu     sync.Mutex
	runs   bool
	misses int
	asked  time.Time
	asking sync.Mutex
}

// Find takes the folder of the daemon's pipes from the operator's setting, the environment, or NVIDIA's default.
func Find(dir string) *Daemon {
	return &Daemon{dir: filepath.Clean(cmp.Or(dir, os.Getenv(dirName), defaultDir))}
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
	if !d.asked.IsZero() && now.Sub(d.asked) < interval {
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

// answers reports whether the daemon lists its servers; there may be none while it has no client. The result is
// uncertain if nothing says that there is no daemon.
func (d *Daemon) answers(ctx context.Context) (runs, certain bool) {
	if info, err := os.Stat(d.dir); err != nil || !info.IsDir() {
		return false, true
	}
	path, err := exec.LookPath(control)
	if err != nil {
		return false, true
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(os.Environ(), dirName+"="+d.dir)
	cmd.Stdin = strings.NewReader("get_server_list\n")
	cmd.WaitDelay = timeout
	out, err := cmd.CombinedOutput()
	none := bytes.Contains(out, []byte("Cannot find"))
	return err == nil && !none, err == nil || none
}
