package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Backend starts, watches and ends attempts on this machine.
type Backend struct {
	Layout
	mu sync.Mutex
	// children are supervisors that this process has started and must collect, by process number, with the folder of their attempt.
	children map[int]string
	// asked is when a supervisor was first told to end, by folder.
	asked map[string]time.Time
}

// New makes a back end over a data folder.
func New(dataDir string) *Backend {
	return &Backend{Layout: Layout{DataDir: dataDir}, children: map[int]string{}, asked: map[string]time.Time{}}
}

// Secret reads the secret in a file, or makes one of 32 random bytes if there is none yet; it is 64 hexadecimal digits.
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
	return secret, WriteFile(path, []byte(secret))
}

// Secrets gives the capability of a job and the token of an attempt. They are made once and stay.
func (b *Backend) Secrets(job train.JobID, number int) (capability, token string, err error) {
	dir := b.Attempt(job, number)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("make %s: %w", dir, err)
	}
	capability, err = Secret(filepath.Join(b.Job(job), "capability"))
	if err != nil {
		return "", "", err
	}
	token, err = Secret(filepath.Join(dir, tokenName))
	return capability, token, err
}

// Starting says whether a supervisor that this process started for the attempt has not been collected yet.
func (b *Backend) Starting(job train.JobID, number int) bool {
	dir := b.Attempt(job, number)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.children {
		if d == dir {
			return true
		}
	}
	return false
}

// Start has a supervisor run the launch, unless one was started for this attempt before. It does not wait for it. On a busy machine a supervisor takes its
// time to claim the attempt; until it has ended, no other one is started.
func (b *Backend) Start(l Launch) error {
	dir := b.Attempt(l.Job, l.Attempt)
	if b.Starting(l.Job, l.Attempt) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if exists(filepath.Join(dir, claimName)) {
		return nil
	}
	// A launch that is there was written by an executor that died before it saw a supervisor: one may be reading it.
	if path := filepath.Join(dir, launchName); !exists(path) {
		if err := writeJSON(path, l); err != nil {
			return err
		}
	}
	noise, err := os.OpenFile(filepath.Join(dir, noiseName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start the supervisor of %s: %w", l.Job, err)
	}
	defer func() { _ = noise.Close() }()
	cmd := exec.Command("/proc/self/exe", shimArgument, dir)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = noise, noise
	// A session of its own: neither the terminal nor the end of the executor reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the supervisor of %s: %w", l.Job, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.children[cmd.Process.Pid] = dir
	return cmd.Process.Release()
}

// Refuse records the end of an attempt that cannot be started, in words; nothing happens where it was started before.
func (b *Backend) Refuse(job train.JobID, number int, e train.Exit) error {
	dir := b.Attempt(job, number)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	lock, err := tryLock(filepath.Join(dir, lockName))
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	taken, err := claim(dir)
	if err != nil || !taken {
		return err
	}
	return writeJSON(filepath.Join(dir, exitName), exitFile{Exit: e, ExitedAt: time.Now().UTC()})
}

// Collect reaps supervisors that have ended.
func (b *Backend) Collect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.children, func(pid int, _ string) bool {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return got == pid || errors.Is(err, unix.ECHILD)
	})
}

// Look says how far an attempt has come.
func (b *Backend) Look(job train.JobID, number int) (launch.Sight, error) {
	dir := b.Attempt(job, number)
	if !exists(dir) {
		return launch.Sight{}, nil
	}
	lock, err := tryLock(filepath.Join(dir, lockName))
	if err != nil {
		return launch.Sight{}, err
	}
	alive := lock == nil
	if lock != nil {
		defer func() { _ = lock.Close() }()
	}
	s, err := sight(dir)
	switch {
	case err != nil || s.Phase == launch.Exited:
	case !exists(filepath.Join(dir, claimName)):
		// Whoever holds the lock is about to claim; nobody has started anything.
		s.Phase = launch.Absent
	case !alive:
		s.Phase = launch.Lost
	case !s.StartedAt.IsZero():
		s.Phase = launch.Running
	default:
		s.Phase = launch.Starting
	}
	return s, err
}

// sight reads what the supervisor wrote.
func sight(dir string) (launch.Sight, error) {
	var s launch.Sight
	shim, found, err := readJSON[shimFile](filepath.Join(dir, shimName))
	if err != nil {
		return s, err
	}
	if found {
		s.PID, s.PIDStart, s.BootID, s.StartedAt = shim.PID, shim.PIDStart, shim.BootID, shim.StartedAt
	}
	end, found, err := readJSON[exitFile](filepath.Join(dir, exitName))
	if err != nil {
		return s, err
	}
	if found {
		s.Phase, s.Exit, s.ExitedAt = launch.Exited, end.Exit, end.ExitedAt
		if s.StartedAt.IsZero() {
			s.StartedAt = end.StartedAt
		}
	}
	return s, nil
}

// stuckAfter is how long a supervisor that was told to end may take beyond the time that it gives the processes.
const stuckAfter = 15 * time.Second

// Stop has the processes of an attempt end: they are asked, and killed after a while. It does not wait, and is called until the exit is seen. One that was
// not started yet never will be. A supervisor that does not act is killed itself, and its processes with it.
func (b *Backend) Stop(job train.JobID, number int, killAfter time.Duration, now time.Time) error {
	dir := b.Attempt(job, number)
	s, err := b.Look(job, number)
	if err != nil {
		return err
	}
	switch s.Phase {
	case launch.Absent:
		return b.Refuse(job, number, train.Exit{Forced: true, Signal: "SIGTERM"})
	case launch.Exited, launch.Lost:
		return nil
	case launch.Starting, launch.Running, launch.Ending:
		if s.PID == 0 {
			return nil // about to say who it is
		}
	}
	b.mu.Lock()
	first, asked := b.asked[dir]
	if !asked {
		first, b.asked[dir] = now, now
	}
	b.mu.Unlock()
	signal := unix.SIGTERM
	if now.Sub(first) > killAfter+stuckAfter {
		signal = unix.SIGKILL
	} else if asked {
		return nil
	}
	return signalProcess(s.PID, s.PIDStart, signal)
}

// signalProcess signals a process if it is still the one that is meant.
func signalProcess(pid int, start uint64, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if s, err := kernel.Process(pid); err != nil || s.Start != start {
		return nil // it is gone
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %d: %w", pid, err)
	}
	return nil
}

// Sweep kills what is left of an attempt whose supervisor is gone; left is how many processes were seen. It is called until none are.
func (b *Backend) Sweep(ctx context.Context, a train.Attempt) (left int, err error) {
	dir := b.Attempt(a.Job, a.Number)
	shim, found, err := readJSON[shimFile](filepath.Join(dir, shimName))
	if err != nil {
		return 0, err
	}
	if !found {
		shim = shimFile{PID: a.PID, PIDStart: a.PIDStart, BootID: a.BootID}
	}
	l, found, err := readJSON[Launch](filepath.Join(dir, launchName))
	if err != nil {
		return 0, err
	}
	if !found {
		l.Marker = launch.Marker(a)
	}
	if shim.BootID != bootID() {
		shim.PID = 0 // its numbers mean nothing any more
	}
	pids, err := leftovers(shim, l.Marker)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if len(pids) == 0 {
		runCleanup(ctx, l.Cleanup)
	}
	return len(pids), nil
}

// WaitExit returns when the supervisor has ended or ctx is done.
func WaitExit(ctx context.Context, s launch.Sight) {
	fd, err := unix.PidfdOpen(s.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	// The runtime's poller waits for it without a thread of its own.
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = f.Close() }()
	if now, err := kernel.Process(s.PID); err != nil || now.Start != s.PIDStart {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}
