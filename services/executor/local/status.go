package local

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// Status returns how far an attempt has got. Files send no events.
func (b *Backend) Status(_ context.Context, a train.Attempt) (launch.Status, error) {
	s, err := b.status(a)
	s.Again, s.Staging = launch.Later, b.stagingOf(a)
	if s.Phase == launch.Absent || s.Phase == launch.Starting {
		s.Again = launch.Soon
	}
	return s, err
}

// Follow calls changed when the supervisor of a running attempt ends.
func (b *Backend) Follow(ctx context.Context, a train.Attempt, s launch.Status, changed func()) {
	folder := b.folder(a)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.followed[folder] {
		return
	}
	b.followed[folder] = true
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
	if now, err := attempt.Kernel.Process(s.PID); err != nil || now.Start != s.PIDStart {
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

// stagingOf returns how far the data of an attempt is; nil without any.
func (b *Backend) stagingOf(a train.Attempt) *train.Staging {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, known := b.stagings[b.folder(a)]; known {
		return &s
	}
	if b.people != nil {
		return attempt.In(b.people.Layout, a.Job, a.Number).Staging()
	}
	return nil
}
