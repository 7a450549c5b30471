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
)

// Daemon is the daemon of a node, whether or not it runs.
type Daemon struct {
	dir string

	mu     sync.Mutex
	runs   bool
	asked  time.Time
	asking sync.Mutex
}

// Find takes the folder of the daemon's pipes from what an operator says, the environment, or NVIDIA's default.
func Find(dir string) *Daemon {
	return &Daemon{dir: filepath.Clean(cmp.Or(dir, os.Getenv(dirName), defaultDir))}
}

// Dir is the folder of the pipes of a daemon that answered when it was last asked; empty where none does.
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
	runs := d.answers(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs, d.asked = runs, now
}

// answers says whether the daemon lists its servers; there may be none as long as it has no client.
func (d *Daemon) answers(ctx context.Context) bool {
	if info, err := os.Stat(d.dir); err != nil || !info.IsDir() {
		return false
	}
	path, err := exec.LookPath(control)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(os.Environ(), dirName+"="+d.dir)
	cmd.Stdin = strings.NewReader("get_server_list\n")
	cmd.WaitDelay = timeout
	out, err := cmd.CombinedOutput()
	return err == nil && !bytes.Contains(out, []byte("Cannot find"))
}
