package attempt

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTroubleOfTheMachineIsNotTheJobs: a folder that cannot be made for lack of room ends the attempt, not the job.
func TestTroubleOfTheMachineIsNotTheJobs(t *testing.T) {
	full := fmt.Errorf("make the working folder: %w", &os.PathError{Op: "mkdir", Path: "/jobs/j/work", Err: unix.ENOSPC})
	if e := Unstarted(full); !e.Lost || !e.Unstarted || e.Reason.Message != "make the working folder: mkdir /jobs/j/work: no space left on device" {
		t.Errorf("no room: %+v", e)
	}
	if e := Unstarted(errors.New("custom_dir /c is not a folder")); e.Lost || e.Code == 0 || e.Message == "" {
		t.Errorf("no folder: %+v", e)
	}
}
