package attempt

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/look"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Passes reports whether an error says that a disk or the kernel of the machine is in trouble, which may pass.
func Passes(err error) bool {
	troubles := []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ESTALE, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, look.ErrHangs}
	return slices.ContainsFunc(troubles, func(trouble error) bool { return errors.Is(err, trouble) })
}

// Unstarted returns the end of an attempt that could not be started. If its machine is in trouble, another attempt may
// start.
func Unstarted(err error) train.Exit {
	if !Passes(err) {
		return train.Exit{Code: launch.CannotStart, Message: err.Error()}
	}
	if errors.Is(err, look.ErrHangs) {
		return train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{
			Code: "FileSystemHangs", Message: err.Error(), Hint: "mount its file system on the node again: `ls` must answer there",
		}}
	}
	return train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{
		Code: "MachineTrouble", Message: err.Error(), Hint: "`df -h` and `df -i` on the node show whether a disk is full",
	}}
}

// FullDisk says that so little is left on the disk of a folder that a program would soon fail for it; its code is empty
// if there is room.
func FullDisk(dir string) train.Reason {
	room, err := disk.Of(dir)
	if err != nil || !room.Scarce() {
		return train.Reason{}
	}
	return train.Reason{
		Code: train.DiskFull, Message: fmt.Sprintf("the disk of %s is full: %s of %s are left", room.Dir, room.Free, room.Total),
		Hint: "make room on it: `switchyard purge` removes what ended jobs left; the job then starts again by itself",
	}
}

// Plain strips the operation from an error about a path, because the message is for the job's owner.
func Plain(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
