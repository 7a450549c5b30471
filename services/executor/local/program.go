package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// Supervisor is the program that supervises attempts. The zero value is the program of this process.
type Supervisor struct{ path string }

// FindSupervisor returns the program beside this process's own. Without a fitting one, missing says why, and this
// process's own takes its place.
func FindSupervisor(ctx context.Context) (found Supervisor, missing error) {
	self, err := os.Executable()
	if err != nil {
		return Supervisor{}, fmt.Errorf("find this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), attempt.SupervisorName)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return Supervisor{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	// The descriptor stays open: an upgrade may replace the file while this process runs. A new process puts its own
	// files below this number.
	const high = 64
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, high)
	if err != nil {
		return Supervisor{}, fmt.Errorf("keep %s open: %w", path, err)
	}
	found = Supervisor{path: "/proc/self/fd/" + strconv.Itoa(kept)}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	said, err := exec.CommandContext(ctx, found.path, attempt.PrintVersion).Output()
	if version := string(bytes.TrimSpace(said)); err == nil && version != strconv.Itoa(attempt.Version) {
		err = fmt.Errorf("%w: its launches are of version %q, not %d", errOtherVersion, version, attempt.Version)
	}
	if err != nil {
		return Supervisor{}, errors.Join(fmt.Errorf("run %s: %w", path, err), unix.Close(kept))
	}
	return found, nil
}

// answerTime bounds how long a supervisor may take to print its version.
const answerTime = 10 * time.Second

var errOtherVersion = errors.New("it is not of the version of this program")

// program returns the path by which a new process of this one executes the supervisor.
func (s Supervisor) program() string {
	if s.path == "" {
		return "/proc/self/exe"
	}
	return s.path
}

// command returns the command of a supervisor of the attempt in a folder.
func (s Supervisor) command(folder attempt.Folder) *exec.Cmd {
	cmd := exec.Command(s.program(), attempt.Supervise, folder.Path)
	cmd.Args[0], cmd.Dir = attempt.SupervisorName, "/"
	return cmd
}
