package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
	"github.com/switchyard-dl/switchyard/services/executor/local/supervisor"
)

// superviseLaunched is the life of a supervisor that the launcher has started as the user of a job. It opens and makes
// everything with the rights of that user.
func superviseLaunched(from io.Reader) error {
	var l launcher.Start
	if err := json.NewDecoder(from).Decode(&l); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	unix.CloseOnExec(prepare.ArchiveFile)
	if l.Processes {
		if err := launcher.ShowOwnProcesses(); err != nil {
			return err
		}
	}
	// The executor reads what is in the folder of the attempt, and takes reports away. Programs have the usual mask.
	unix.Umask(0o007)
	folder := attempt.In(installation.Layout{DataDir: l.Jobs, People: true}, l.Job.ID, l.Attempt)
	if stderr, err := folder.OpenErrors(); err == nil {
		_ = unix.Dup3(int(stderr.Fd()), int(os.Stderr.Fd()), 0)
		_ = stderr.Close()
	}
	made, end := prepare.Signed(l)
	if end != nil {
		return folder.Refuse(*end)
	}
	if err := folder.WriteLaunch(made); err != nil {
		return err
	}
	return supervisor.Supervise(folder, func() bool { return true })
}
