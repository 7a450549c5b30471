// Package supervisor is the process beside the programs of one attempt: it starts them, keeps their output, serves
// their terminals, bounds their memory and records their end. It outlives the executor. What runs is in the attempt's
// launch; the package decides neither that nor what an end means.
package supervisor

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// RunIfAsked takes over a process that was started as a supervisor, and then does not return. The main functions of
// programs that start supervisors call it first.
func RunIfAsked(args []string) {
	if len(args) != 3 || args[1] != attempt.Supervise && args[1] != attempt.Try {
		return
	}
	status := 0
	if _, err := Run(args); err != nil {
		fmt.Fprintf(os.Stderr, "supervisor: %v\n", err)
		status = 1
	}
	os.Exit(status) //nolint:forbidigo // the process is the supervisor from here on: there is no main to go back to
}

// Run does what the executor asks of a supervisor by its arguments. known is false if it asks for nothing.
func Run(args []string) (known bool, err error) {
	switch {
	case len(args) == 2 && args[1] == attempt.PrintVersion:
		_, err = fmt.Fprintln(os.Stdout, attempt.Version)
	case len(args) == 3 && args[1] == attempt.Supervise:
		err = Supervise(attempt.Folder{Path: args[2]}, awaitLaunch)
	case len(args) == 3 && args[1] == attempt.Try:
		err = try(attempt.Folder{Path: args[2]})
	default:
		return false, nil
	}
	return true, err
}

// awaitLaunch returns true once the executor has written the launch, and false if it has ended or given up.
func awaitLaunch() bool {
	n, _ := os.Stdin.Read(make([]byte, 1))
	return n > 0
}

// try starts the program of a launch as a supervisor does, and waits for it.
func try(folder attempt.Folder) error {
	l, err := folder.Launch()
	if err != nil {
		return err
	}
	stage, err := newStage(l, folder.Path)
	if err != nil {
		return err
	}
	pid, err := stage.start(l.Processes[0], [3]*os.File{stage.nothing, stage.nothing, stage.nothing}, &syscall.SysProcAttr{})
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		return errors.Join(errTried, err)
	}
	return nil
}

var errTried = errors.New("the program that was tried has failed")
