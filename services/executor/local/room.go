package local

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// diskTrouble says that so little is left on the disk of a folder that a program would soon fail for it; its code is
// empty if there is room.
func diskTrouble(dir string) train.Reason {
	room, err := disk.Of(dir)
	if err != nil || !room.Scarce() {
		return train.Reason{}
	}
	return train.Reason{
		Code: train.DiskFull, Message: fmt.Sprintf("the disk of %s is full: %s of %s are left", room.Dir, room.Free, room.Total),
		Hint: "make room on it: `switchyard purge` removes what ended jobs left; the job then starts again by itself",
	}
}

// blameDisk names the disk of an attempt's folder as the reason for the failure of its program, if it is full: the
// program may have cleaned up what it could not write, and its words may be its own.
func blameDisk(e train.Exit, dir string) train.Exit {
	if (e.Code != 0 || e.Signal != "") && !e.Forced && !e.Lost && e.Message == "" && e.Reason.Code == "" {
		e.Reason = diskTrouble(dir)
	}
	return e
}
