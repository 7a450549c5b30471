// Package local runs attempts as processes of this machine, for the executor. Each attempt has its own supervisor
// process, which outlives the executor; package attempt says what both know of it. The package does not decide which
// attempt runs or what an exit means.
package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
	"github.com/switchyard-dl/switchyard/services/executor/local/trash"
)

// Backend starts, watches and ends attempts as processes of this machine. Each attempt has a supervisor process.
type Backend struct {
	prepare.Preparer
	// Trash is where the folders of ended attempts go.
	Trash   *trash.Trash
	program Supervisor
	// people starts attempts as the users who submitted them; nil if they run as the user of this process.
	people *people
	// followers wait for the ends of supervisors, for uploads, and for agents that take reports.
	followers conc.WaitGroup

	mu sync.Mutex
	// changed is called with a job to be looked at again. awaited are the pipes at which supervisors say so.
	changed func(...train.JobID)
	awaited map[*os.File]bool
	// children are the supervisors that this process has started and must reap, by process number, with the folder of
	// their attempt.
	children map[int]attempt.Folder
	// stopAsked is when a supervisor was first asked to end its attempt, by folder.
	stopAsked map[attempt.Folder]time.Time
	// followed are the folders of attempts whose supervisor's end is waited for.
	followed map[attempt.Folder]bool
	// preparing are the folders of attempts whose data, uploaded folder or checkpoints are on their way, with what ends
	// that; troubles says why those of others did not arrive.
	preparing map[attempt.Folder]context.CancelFunc
	troubles  map[attempt.Folder]error
	// handingOver are the folders of ended attempts whose reports are on their way to the agent.
	handingOver map[attempt.Folder]bool
	// stagings are how far the data of attempts is.
	stagings map[attempt.Folder]train.Staging
}

// New makes a back end over a data folder, whose attempts have a program as their supervisors.
func New(dataDir string, program Supervisor, bounds prepare.Bounds) *Backend {
	if bounds.User == nil {
		bounds.User = attempt.Self()
	}
	b := &Backend{
		Preparer: prepare.New(installation.Layout{DataDir: dataDir}, bounds), Trash: trash.In(dataDir), program: program,
		changed: func(...train.JobID) {}, awaited: map[*os.File]bool{}, children: map[int]attempt.Folder{},
		stopAsked: map[attempt.Folder]time.Time{}, followed: map[attempt.Folder]bool{},
		preparing: map[attempt.Folder]context.CancelFunc{}, troubles: map[attempt.Folder]error{}, stagings: map[attempt.Folder]train.Staging{},
		handingOver: map[attempt.Folder]bool{},
	}
	b.Staged = func(folder attempt.Folder, now train.Staging) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stagings[folder] = now
	}
	return b
}

// folder returns the folder of an attempt in the data folder. If the attempt runs as its submitter, its supervisor has
// another one.
func (b *Backend) folder(a train.Attempt) attempt.Folder {
	return attempt.In(b.Layout, a.Job, a.Number)
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
	maps.DeleteFunc(b.children, func(pid int, _ attempt.Folder) bool {
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

// Reads reports whether an attempt, by the name under which it fetches data, has not ended.
func (b *Backend) Reads(name string) bool {
	folder, is := b.Reader(name)
	return is && b.isPreparing(folder) || b.Preparer.Reads(name)
}

// Secrets returns the values of the secret variables of a job. Where jobs run as their submitters, it leaves files to
// the supervisor of the job, which has the rights of the submitter.
func (b *Backend) Secrets(_ context.Context, spec train.Spec) (map[string]string, error) {
	return b.Preparer.Secrets(spec, func(kind train.SecretKind) bool { return kind != train.SecretFile || b.people == nil })
}

// secret reads the secret in a file, or makes one of 32 random bytes and writes it if the file does not exist or is not
// whole. A secret has 64 hexadecimal digits.
func secret(path string) (string, error) {
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
	return made, installation.ReplaceFile(path, []byte(made))
}

// Namespace returns none.
func (b *Backend) Namespace(train.Spec) string { return "" }

// MakeSecrets returns the capability of a job and the token of an attempt. Both are made once and kept.
func (b *Backend) MakeSecrets(_ context.Context, a train.Attempt) (capability, token string, err error) {
	folder := b.folder(a)
	if err := installation.MakeFolder(folder.Path); err != nil {
		return "", "", err
	}
	// No sync is needed before the claim: if the machine fails and its files are gone, the claimed attempt counts as lost.
	capability, err = secret(b.Capability(a.Job))
	if err != nil {
		return "", "", err
	}
	token, err = secret(folder.Token())
	return capability, token, err
}

// ReadSecrets also makes missing secrets. A supervisor of this attempt would be found by its folder, so secrets other
// than the claimed ones lead to a loss and are no danger.
func (b *Backend) ReadSecrets(ctx context.Context, a train.Attempt) (capability, token string, err error) {
	return b.MakeSecrets(ctx, a)
}
