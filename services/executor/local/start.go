package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// Start starts a supervisor that starts the processes. What can never work is recorded as the end. The first attempt of
// a job with an uploaded folder, or with the checkpoints of another job, gets them before, while others start; so does
// each attempt of a job with data at an address.
func (b *Backend) Start(ctx context.Context, s launch.Setting) error {
	if b.people != nil {
		if s.Spec.Upload == "" {
			return b.startAs(s, nil)
		}
		b.startPrepared(ctx, s)
		return nil
	}
	if b.Prepared(s) {
		return b.start(s)
	}
	b.startPrepared(ctx, s)
	return nil
}

func (b *Backend) start(s launch.Setting) error {
	made, end, err := b.Launch(s)
	switch {
	case err != nil:
		return err
	case end != nil:
		return b.folder(s.Attempt).Refuse(*end)
	}
	return b.Spawn(made)
}

// Starting reports whether a supervisor is about to take the attempt over. A supervisor that failed says why in a
// file, not here.
func (b *Backend) Starting(a train.Attempt) (bool, error) {
	b.reap()
	folder := b.folder(a)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.preparing[folder] || b.child(folder) || b.troubles[folder] == nil && b.launched(a) {
		return true, nil
	}
	return false, cmp.Or(b.troubles[folder], errNotTaken)
}

var errNotTaken = errors.New("no supervisor has taken it over; shim.log in the attempt's folder may say why")

// hasChild reports whether a supervisor that this process started for the attempt has not been reaped yet.
func (b *Backend) hasChild(folder attempt.Folder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.child(folder)
}

// child is hasChild for those who hold the lock.
func (b *Backend) child(folder attempt.Folder) bool {
	for _, of := range b.children {
		if of == folder {
			return true
		}
	}
	return false
}

// Spawn starts a supervisor for the launch, unless one was started for this attempt before. It does not wait for it.
// On a busy machine a supervisor may take a while to claim the attempt; no other one is started until it has ended.
func (b *Backend) Spawn(l attempt.Launch) error {
	folder := attempt.In(b.Layout, l.Job, l.Attempt)
	if b.hasChild(folder) {
		return nil
	}
	if err := installation.MakeFolder(folder.Path); err != nil {
		return err
	}
	if folder.Claimed() {
		return nil
	}
	// An existing launch file was written by an executor that died before it saw a supervisor: a supervisor may have
	// read the file.
	if _, found, err := folder.KeptLaunch(); err != nil {
		return err
	} else if !found {
		if err := folder.WriteLaunch(l); err != nil {
			return err
		}
	}
	stderr, err := folder.OpenErrors()
	if err != nil {
		return fmt.Errorf("start the supervisor of %s: %w", l.Job, err)
	}
	defer func() { _ = stderr.Close() }()
	started, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the supervisor of %s: %w", l.Job, err)
	}
	defer func() { _ = tell.Close() }()
	cmd := b.program.command(folder)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tell, stderr, stderr
	if l.Runtime == engine.None { // only the client of a container runtime needs the executor's environment
		cmd.Env = []string{}
	}
	// In a session of its own, neither the terminal nor the end of the executor reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	l.Sandbox.Apply(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		_ = started.Close()
		return fmt.Errorf("start the supervisor of %s: %w", l.Job, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.children[cmd.Process.Pid] = folder
	b.awaitStart(l.Job, started)
	return cmd.Process.Release()
}

// awaitStart looks at a job again once its supervisor has closed its end of a pipe: its programs run, or it has ended.
// The caller holds the lock.
func (b *Backend) awaitStart(job train.JobID, started *os.File) {
	changed := b.changed
	b.awaited[started] = true
	b.followers.Go(func() {
		_, _ = started.Read(make([]byte, 1))
		_ = started.Close()
		b.mu.Lock()
		delete(b.awaited, started)
		b.mu.Unlock()
		changed(job)
	})
}

// Refuse records the end of an attempt that cannot be started. It does nothing if the attempt was started before.
func (b *Backend) Refuse(_ context.Context, a train.Attempt, e train.Exit) error {
	return b.folder(a).Refuse(e)
}
