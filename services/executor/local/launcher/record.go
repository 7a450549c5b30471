package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
)

// Record is what the launcher writes down of a job: the newest attempt that it has started, or was about to. Root owns
// the file and its folder.
type Record struct {
	Attempt int `json:"attempt"`
	UID     int `json:"uid"`
	// PID and PIDStart are those of the supervisor in the run BootID of the kernel; 0 if it was not started.
	PID      int           `json:"pid,omitempty"`
	PIDStart uint64        `json:"pid_start,omitempty"`
	BootID   string        `json:"boot_id"`
	Groups   cgroup.Groups `json:"groups"`
	// Bounded is set if the kernel bounds the memory of the groups.
	Bounded bool `json:"bounded,omitempty"`
	// Retunes is set if the supervisor knows RetuneSignal. It would end others.
	Retunes bool `json:"retunes,omitempty"`
}

// RetuneSignal tells a supervisor that CoresFile says another number.
const RetuneSignal = unix.SIGUSR1

// CoresFile is the file in which the launcher writes down how many processors each process of the running attempt gets.
func CoresFile(l installation.Layout, job train.JobID) string {
	return filepath.Join(l.Job(job), "cores")
}

// recordName is the file in the folder of a job.
const recordName = "launched"

// Read returns the record of a job; found is false if none of its attempts was launched.
func Read(l installation.Layout, job train.JobID) (r Record, found bool, err error) {
	path := filepath.Join(l.Job(job), recordName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("read %s: %w", path, err)
	}
	return r, true, nil
}

func (r Record) write(l installation.Layout, job train.JobID, write func(string, []byte) error) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record of %s: %w", job, err)
	}
	return write(filepath.Join(l.Job(job), recordName), append(data, '\n'))
}

// Modes of folders. Those of root show the service what is in them; the user gets through, if he knows the name. The
// service only reads the folder of an attempt: what a supervisor reads there must be its own.
const (
	passedMode  = 0o751 | fs.ModeSetgid
	ownMode     = 0o750 | fs.ModeSetgid
	attemptMode = 0o750 | fs.ModeSetgid
	privateMode = 0o700 // not even the service reads it
)

// makeFolders makes the folders of an attempt. All but the last of each path belong to root, so that nobody puts
// something else in its place meanwhile.
func (l *Launcher) makeFolders(job train.JobID, attempt int, u User) error {
	layout, group := l.layout(), l.service.GID
	dir, data := layout.Attempt(job, attempt), layout.PersonsData(u.UID)
	for _, path := range []string{filepath.Dir(layout.Job(job)), layout.Job(job), filepath.Dir(dir), filepath.Dir(data)} {
		if err := makeFolder(path, 0, group, passedMode); err != nil {
			return err
		}
	}
	if err := l.makeOwn(layout.Own(job), u); err != nil {
		return err
	}
	return errors.Join(
		makeFolder(dir, u.UID, group, attemptMode), makeFolder(data, u.UID, u.GID, privateMode),
	)
}

// makeOwn makes the folder with all that a job makes, and bounds its space before anything is in it. A folder without
// its bound is removed: it would never get one.
func (l *Launcher) makeOwn(path string, u User) error {
	_, err := os.Lstat(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err := makeFolder(path, u.UID, l.service.GID, ownMode); err != nil || !fresh || l.config.Disk <= 0 {
		return err
	}
	if err := disk.Bound(path, unit.Bytes(l.config.Disk)*unit.GiB); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

var errOwner = errors.New("belongs to another user")

// makeFolder makes a folder of a user, or finds it.
func makeFolder(path string, uid, gid int, mode fs.FileMode) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		var there unix.Stat_t
		if err := unix.Lstat(path, &there); err != nil {
			return &os.PathError{Op: "look at", Path: path, Err: err}
		}
		if there.Mode&unix.S_IFMT != unix.S_IFDIR || int(there.Uid) != uid {
			return fmt.Errorf("%s %w: %d, not %d", path, errOwner, there.Uid, uid)
		}
		return nil
	}
	if err == nil {
		err = errors.Join(os.Lchown(path, uid, gid), os.Chmod(path, mode))
	}
	return err
}
