package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/sourcegraph/conc/pool"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
)

// Start starts a supervisor that starts the processes. What can never work is recorded as the end. The first attempt of
// a job with an uploaded folder, or with the checkpoints of another job, gets them before, while others start; so does
// each attempt of a job with data at an address.
func (b *Backend) Start(ctx context.Context, s launch.Setting) error {
	if b.people != nil {
		if err := b.keepCapability(s.Job); err != nil {
			return err
		}
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

// start starts a supervisor, and makes its launch meanwhile: both take a few milliseconds.
func (b *Backend) start(s launch.Setting) error {
	supervisor, err := b.prestart(b.folder(s.Attempt), b.Sandbox(s.Spec), prepare.Runtime(s))
	if err != nil || supervisor == nil {
		return err
	}
	defer supervisor.abandon()
	kept := pool.New().WithErrors()
	kept.Go(func() error { return b.keepCapability(s.Job) })
	made, end, err := b.Launch(s)
	if err = errors.Join(err, kept.Wait()); err != nil {
		return err
	}
	if end != nil {
		supervisor.abandon() // it holds the attempt
		return b.folder(s.Attempt).Refuse(*end)
	}
	return b.handOverLaunch(supervisor, made)
}

// keepCapability returns once the capability of a job is on disk: its checkpoints are found by it after a failure of
// the machine.
func (b *Backend) keepCapability(job train.JobID) error {
	return installation.SyncFile(b.Capability(job))
}

// Starting reports whether a supervisor is about to take the attempt over. A supervisor that failed says why in a
// file, not here.
func (b *Backend) Starting(a train.Attempt) (bool, error) {
	b.reap()
	folder := b.folder(a)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.preparing[folder] != nil || b.child(folder) || b.troubles[folder] == nil && b.launched(a) {
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
	supervisor, err := b.prestart(attempt.In(b.Layout, l.Job, l.Attempt), l.Sandbox, l.Runtime)
	if err != nil || supervisor == nil {
		return err
	}
	defer supervisor.abandon()
	return b.handOverLaunch(supervisor, l)
}

// prestarted is a supervisor that waits for its launch.
type prestarted struct {
	folder attempt.Folder
	cmd    *exec.Cmd
	// line is the executor's end of the socket that is the supervisor's standard input. A byte says that the launch is
	// written.
	line *os.File
	// gone is set once it has its launch, or was abandoned.
	gone bool
}

// prestart starts a supervisor that waits for its launch. It returns nil if the attempt has a supervisor already.
func (b *Backend) prestart(folder attempt.Folder, sandbox attempt.Sandbox, runtime engine.Engine) (*prestarted, error) {
	if b.hasChild(folder) {
		return nil, nil
	}
	if err := installation.MakeFolder(folder.Path); err != nil {
		return nil, err
	}
	if folder.Claimed() {
		return nil, nil
	}
	stderr, err := folder.OpenErrors()
	if err != nil {
		return nil, fmt.Errorf("start a supervisor in %s: %w", folder.Path, err)
	}
	defer func() { _ = stderr.Close() }()
	line, end, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("start a supervisor in %s: %w", folder.Path, err)
	}
	defer func() { _ = end.Close() }()
	cmd := b.program.command(folder)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, stderr, stderr
	if runtime == engine.None { // only the client of a container runtime needs the executor's environment
		cmd.Env = []string{}
	}
	// In a session of its own, neither the terminal nor the end of the executor reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	sandbox.Apply(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		_ = line.Close()
		return nil, fmt.Errorf("start a supervisor in %s: %w", folder.Path, err)
	}
	return &prestarted{folder: folder, cmd: cmd, line: line}, nil
}

// socketPair returns two sockets that are connected. Reading from ours ends when it is closed, too.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	_ = unix.SetNonblock(fds[0], true) // always possible
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "supervisor"), nil
}

// abandon ends a supervisor that has got no launch, and returns once it has exited.
func (s *prestarted) abandon() {
	if !s.gone {
		s.gone = true
		_ = s.line.Close()
		_ = s.cmd.Wait()
	}
}

// handOverLaunch writes the launch and tells the supervisor so.
func (b *Backend) handOverLaunch(s *prestarted, l attempt.Launch) error {
	// An existing launch file was written by an executor that died before it saw a supervisor: a supervisor may have
	// read the file.
	if _, found, err := s.folder.KeptLaunch(); err != nil {
		return err
	} else if !found {
		if err := s.folder.WriteLaunch(l); err != nil {
			return err
		}
	}
	_, _ = s.line.Write([]byte{1}) // a supervisor that has ended says why in its file
	s.gone = true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.children[s.cmd.Process.Pid] = s.folder
	b.awaitStart(l.Job, s.line)
	return s.cmd.Process.Release()
}

// awaitStart looks at a job again once its supervisor has closed its end of the socket: its programs run, or it has
// ended. The caller holds the lock.
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
