package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Status returns how far an attempt has got. Files send no events.
func (b *Backend) Status(_ context.Context, a train.Attempt) (launch.Status, error) {
	s, err := b.status(a.Job, a.Number)
	s.Again, s.Staging = launch.Later, b.stagingOf(a.Job, a.Number)
	if s.Phase == launch.Absent || s.Phase == launch.Starting {
		s.Again = launch.Soon
	}
	return s, err
}

// status returns how far the attempt in a folder has got.
func status(dir string) (launch.Status, error) {
	if !exists(dir) {
		return launch.Status{}, nil
	}
	lock, err := tryLock(filepath.Join(dir, lockName))
	if err != nil {
		return launch.Status{}, err
	}
	alive := lock == nil
	if lock != nil {
		defer func() { _ = lock.Close() }()
	}
	s, err := readStatus(dir)
	switch {
	case err != nil || s.Phase == launch.Exited:
	case !exists(filepath.Join(dir, claimName)):
		// Another process holds the lock and is about to claim; nothing has been started.
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

// readStatus reads what the supervisor wrote.
func readStatus(dir string) (launch.Status, error) {
	var s launch.Status
	sup, found, err := readWhole[supervisorFile](filepath.Join(dir, supervisorName))
	if err != nil {
		return s, err
	}
	if found {
		s.PID, s.PIDStart, s.BootID, s.StartedAt = sup.PID, sup.PIDStart, sup.BootID, sup.StartedAt
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

// Follow calls changed when the supervisor of a running attempt ends.
func (b *Backend) Follow(ctx context.Context, a train.Attempt, s launch.Status, changed func()) {
	dir := b.Attempt(a.Job, a.Number)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.followed[dir] {
		return
	}
	b.followed[dir] = true
	b.followers.Go(func() {
		WaitExit(ctx, s)
		changed()
	})
}

// WaitExit returns when the supervisor has ended or ctx is done.
func WaitExit(ctx context.Context, s launch.Status) {
	fd, err := unix.PidfdOpen(s.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	// The runtime's poller waits for it, so no thread is blocked.
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
