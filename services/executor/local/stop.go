package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// stuckAfter is how much longer than the processes' own time a supervisor may take after it was asked to end.
const stuckAfter = 15 * time.Second

// Stop makes the processes of an attempt end: it asks them, and kills them after a while. It does not wait; it is
// called until the exit is seen. An attempt that was not started yet never will be. A supervisor that does not react
// is killed itself, and its processes with it.
func (b *Backend) Stop(_ context.Context, a train.Attempt, now time.Time) error {
	folder := b.folder(a)
	s, err := b.status(a)
	if err != nil {
		return err
	}
	switch s.Phase {
	case launch.Absent:
		b.endPreparation(folder)
		return folder.Refuse(train.Exit{Forced: true, Signal: "SIGTERM"})
	case launch.Exited, launch.Lost:
		return nil
	case launch.Starting, launch.Running, launch.Ending:
		if s.PID == 0 && !b.launched(a) {
			return nil // it has not written its process number yet
		}
	}
	b.mu.Lock()
	first, asked := b.stopAsked[folder]
	if !asked {
		first, b.stopAsked[folder] = now, now
	}
	b.mu.Unlock()
	signal := unix.SIGTERM
	if now.Sub(first) > b.Bounds.KillAfter()+stuckAfter {
		signal = unix.SIGKILL
	} else if asked {
		return nil
	}
	if b.launched(a) {
		return b.people.stop(a, signal)
	}
	return attempt.Kernel.Signal(s.PID, s.PIDStart, signal)
}

// Sweep kills what is left of an attempt whose supervisor is gone and returns how many processes it found. It is
// called until there are none. What it kills follows from the files of the supervisor and from the attempt's token: a
// process number in a record kills nothing.
func (b *Backend) Sweep(ctx context.Context, a train.Attempt) (left int, err error) {
	if b.launched(a) {
		return b.people.launcher.Kill(a.Job, a.Number)
	}
	folder := b.folder(a)
	sup, err := folder.Supervisor()
	if err != nil {
		return 0, err
	}
	l, _, err := folder.KeptLaunch()
	if err != nil {
		return 0, err
	}
	if l.Job != a.Job || l.Attempt != a.Number {
		l = attempt.Launch{}
	}
	if sup.BootID != attempt.BootID() {
		sup.PID = 0 // the machine was booted since, so its process numbers mean nothing
	}
	group := cmp.Or(l.Group, b.Bounds.Groups.Of(b.DataDir, a.Name()))
	left = group.Kill()
	pids, err := attempt.Leftovers(sup, marker(a, l, folder))
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if left += len(pids); left == 0 {
		l.RemoveContainers(ctx)
		_ = group.Remove() // an empty one does no harm
	}
	return left, nil
}

// marker returns the marker of an attempt's processes, or "" if nothing here says what it is. The one of a launch of
// version 1 does not follow from the token.
func marker(a train.Attempt, l attempt.Launch, folder attempt.Folder) string {
	if strings.HasPrefix(l.Marker, fmt.Sprintf("%s=%s/%d/", train.MarkVariable, a.Job, a.Number)) {
		return l.Marker
	}
	token, err := os.ReadFile(folder.Token())
	if err != nil || len(token) == 0 {
		return ""
	}
	return launch.Marker(a.Job, a.Number, string(token))
}
