// Package mps finds the daemon of NVIDIA's Multi-Process Service, through which several processes use one GPU at the same time, each within bounds of its own.
// Starting the daemon is the operator's affair.
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
	// timeout is how long the daemon may take to answer, every how often it is asked.
	timeout = 2 * time.Second
	every   = 30 * time.Second
	// mostMisses is how many questions in a row may stay without an answer until the daemon counts as gone: on a busy machine one is late now and then.
	mostMisses = 3
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

// Find takes the folder of the daemon's pipes from what an operator says, the environment, or NVIDIA's default.
func Find(dir string) *Daemon {
	return &Daemon{dir: filepath.Clean(cmp.Or(dir, os.Getenv(dirName), defaultDir))}
}

// Dir is the folder of the pipes of a daemon that answers; empty where none does.
func (d *Daemon) Dir() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.runs {
		return ""
	}
	return d.dir
}

// Ask asks the daemon now and then whether it is there.
func (d *Daemon) Ask(ctx context.Context, now time.Time) {
	d.asking.Lock()
	defer d.asking.Unlock()
	if !d.asked.IsZero() && now.Sub(d.asked) < every {
		return
	}
	runs, certain := d.answers(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = now
	if !certain {
		if d.misses++; d.misses < mostMisses {
			return
		}
	}
	d.runs, d.misses = runs, 0
}

// answers says whether the daemon lists its servers; there may be none as long as it has no client. It is not certain where nobody says that there is none.
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
