package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Backend starts, watches and ends attempts as processes of this machine. Each attempt has a supervisor process.
type Backend struct {
	Layout
	// Uploads is where uploaded folders come from.
	Uploads Uploads
	bounds  Bounds
	// followers wait for the ends of supervisors, and for uploads.
	followers conc.WaitGroup

	mu sync.Mutex
	// children are the supervisors that this process has started and must reap, by process number, with the folder of
	// their attempt.
	children map[int]string
	// stopAsked is when a supervisor was first asked to end its attempt, by folder.
	stopAsked map[string]time.Time
	// followed are the folders of attempts whose supervisor's end is waited for.
	followed map[string]bool
	// preparing are the folders of attempts whose uploaded folder or checkpoints are on their way, troubles says why those
	// of others did not arrive.
	preparing map[string]bool
	troubles  map[string]error
}

// New makes a back end over a data folder.
func New(dataDir string, bounds Bounds) *Backend {
	return &Backend{
		Layout: Layout{DataDir: dataDir}, bounds: bounds, preparing: map[string]bool{}, troubles: map[string]error{}, children: map[int]string{}, stopAsked: map[string]time.Time{}, followed: map[string]bool{},
	}
}

// Run reaps supervisors that have ended, until ctx ends. It reports no events: Follow waits for each attempt.
func (b *Backend) Run(ctx context.Context, _ func(...train.JobID)) error {
	for range tick.Every(ctx, launch.Later) {
		b.reap()
	}
	return nil
}

// Ready returns nil: the files of attempts are always there.
func (b *Backend) Ready() error { return nil }

func (b *Backend) reap() {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.children, func(pid int, _ string) bool {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return got == pid || errors.Is(err, unix.ECHILD)
	})
}

// Close waits for what was begun. The context of Follow must have ended.
func (b *Backend) Close() { b.followers.Wait() }

// Mounts reports whether a job sees its folders under their fixed names: always in a container, otherwise if the
// machine allows it.
func (b *Backend) Mounts(spec train.Spec) bool {
	return spec.Image != "" || b.bounds.Sandbox != SandboxNone
}

// Secret reads the secret in a file, or makes one of 32 random bytes if the file does not exist. A secret has 64
// hexadecimal digits.
func Secret(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil && len(data) == 64 {
		return string(data), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	secret, err := launch.NewSecret()
	if err != nil {
		return "", err
	}
	return secret, installation.WriteFile(path, []byte(secret))
}

// MakeSecrets returns the capability of a job and the token of an attempt. Both are made once and kept.
func (b *Backend) MakeSecrets(_ context.Context, job train.JobID, number int) (capability, token string, err error) {
	dir := b.Attempt(job, number)
	if err := makeFolder(dir); err != nil {
		return "", "", err
	}
	capability, err = Secret(filepath.Join(b.Job(job), capabilityName))
	if err != nil {
		return "", "", err
	}
	token, err = Secret(filepath.Join(dir, tokenName))
	return capability, token, err
}

// ReadSecrets also makes missing secrets. A supervisor of this attempt would be found by its folder, so secrets other
// than the claimed ones lead to a loss and are no danger.
func (b *Backend) ReadSecrets(ctx context.Context, job train.JobID, number int) (capability, token string, err error) {
	return b.MakeSecrets(ctx, job, number)
}
