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
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// Backend starts, watches and ends attempts as processes of this machine. Each attempt has a supervisor process.
type Backend struct {
	Layout
	// Uploads is where uploaded folders come from.
	Uploads Uploads
	// Data has the node's copies of data at addresses.
	Data   *staging.Cache
	bounds Bounds
	// people starts attempts as the users who submitted them; nil if they run as the user of this process.
	people *people
	// followers wait for the ends of supervisors, and for uploads.
	followers conc.WaitGroup

	mu sync.Mutex
	// changed is called with a job to be looked at again. awaited are the pipes at which supervisors say so.
	changed func(...train.JobID)
	awaited map[*os.File]bool
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
	stagings  stagings
}

// New makes a back end over a data folder.
func New(dataDir string, bounds Bounds) *Backend {
	if bounds.User == nil {
		bounds.User = self()
	}
	return &Backend{
		Layout: Layout{DataDir: dataDir}, bounds: bounds, preparing: map[string]bool{}, troubles: map[string]error{}, stagings: stagings{}, children: map[int]string{}, stopAsked: map[string]time.Time{}, followed: map[string]bool{},
		changed: func(...train.JobID) {}, awaited: map[*os.File]bool{},
	}
}

// Run reaps supervisors that have ended, until ctx ends. It calls notify with jobs whose programs were started; Follow
// waits for the end of attempts.
func (b *Backend) Run(ctx context.Context, notify func(...train.JobID)) error {
	b.mu.Lock()
	b.changed = notify
	b.mu.Unlock()
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
func (b *Backend) Close() {
	b.mu.Lock()
	for started := range b.awaited {
		_ = started.Close()
	}
	b.mu.Unlock()
	b.followers.Wait()
}

// Mounts reports whether a job sees its folders under their fixed names: always in a container, otherwise if the
// machine allows it.
func (b *Backend) Mounts(spec train.Spec) bool {
	return spec.Image != "" || b.bounds.Sandbox != SandboxNone
}

// secret reads the secret in a file, or makes one of 32 random bytes and writes it if the file does not exist or is not
// whole. A secret has 64 hexadecimal digits.
func secret(path string, write func(path string, data []byte) error) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil && len(data) == 64 {
		return string(data), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	made, err := launch.NewSecret()
	if err != nil {
		return "", err
	}
	return made, write(path, []byte(made))
}

// Namespace returns none.
func (b *Backend) Namespace(train.Spec) string { return "" }

// MakeSecrets returns the capability of a job and the token of an attempt. Both are made once and kept.
func (b *Backend) MakeSecrets(_ context.Context, a train.Attempt) (capability, token string, err error) {
	dir := b.Attempt(a.Job, a.Number)
	if err := makeFolder(dir); err != nil {
		return "", "", err
	}
	capability, err = secret(filepath.Join(b.Job(a.Job), capabilityName), installation.WriteFile)
	if err != nil {
		return "", "", err
	}
	// An attempt whose token the machine has lost is lost itself, so the token needs no sync.
	token, err = secret(filepath.Join(dir, tokenName), installation.ReplaceFile)
	return capability, token, err
}

// ReadSecrets also makes missing secrets. A supervisor of this attempt would be found by its folder, so secrets other
// than the claimed ones lead to a loss and are no danger.
func (b *Backend) ReadSecrets(ctx context.Context, a train.Attempt) (capability, token string, err error) {
	return b.MakeSecrets(ctx, a)
}
