package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// startPatience bounds the wait for a scheduler that this command, or another one, has started.
const startPatience = time.Minute

// connectOrStart connects to the scheduler. If none answers, nobody has said where it is, and systemd runs none, it
// starts one, whose jobs may use the folder of the caller.
func connectOrStart(ctx context.Context, a *console.Console) (y console.Yard, done func(), err error) {
	if a.Nats != "" || os.Getenv("SWITCHYARD_NATS") != "" || os.Getenv("SWITCHYARD_SOCKET") != "" || console.Served() || a.Answers(ctx) {
		return a.Yard(ctx)
	}
	dir := installation.DataDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data folder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	unlock, err := awaitLock(ctx, filepath.Join(dir, "run.lock"))
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if a.Answers(ctx) { // another command has started it meanwhile
		return a.Yard(ctx)
	}
	path := filepath.Join(dir, "up.log")
	pid, err := startUp(dir, path)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(a.Stderr, "no scheduler answers: started `switchyard up` as process %d; its messages are in %s\n", pid, path)
	if err := awaitUp(ctx, a, pid, path); err != nil {
		return nil, nil, err
	}
	return a.Yard(ctx)
}

// awaitLock waits until no other command is starting a scheduler, and returns what lets the next one do it.
func awaitLock(ctx context.Context, path string) (func(), error) {
	unlock, err := installation.Await(ctx, path)
	if err != nil && ctx.Err() != nil {
		err = exit.Errorf(exit.Unreachable, "try again", "another command is starting a scheduler and has not ended")
	}
	return unlock, err
}

// startUp starts a scheduler that outlives this terminal.
func startUp(dir, path string) (pid int, err error) {
	server, err := sibling.FindServer()
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the messages of switchyard up: %w", err)
	}
	defer func() { _ = log.Close() }()
	up := exec.Command(server, "up")
	if here, err := os.Getwd(); err == nil {
		up.Args = append(up.Args, "--allow-root", here)
	}
	up.Args[0], up.Dir = "switchyard", dir
	up.Stdout, up.Stderr, up.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := up.Start(); err != nil {
		return 0, fmt.Errorf("start switchyard up: %w", err)
	}
	return up.Process.Pid, nil
}

// awaitUp waits until all services of a server have started: of the process pid, or, if that one has ended because the
// user's own `switchyard up` was faster, of that.
func awaitUp(ctx context.Context, a *console.Console, pid int, log string) error {
	other := false
	for range tick.Every(ctx, 50*time.Millisecond) {
		c, err := installation.ReadContext(a.ContextPath())
		if err == nil && (c.PID == pid || other && c.DataDir == filepath.Dir(log)) && ready(ctx, c) {
			return nil
		}
		var status unix.WaitStatus
		if done, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); other || err != nil || done != pid {
			continue
		}
		unlock, err := installation.Lock(filepath.Dir(log))
		if other = errors.Is(err, installation.ErrLocked); !other {
			if err == nil {
				unlock()
			}
			return exit.Errorf(exit.Unreachable, "read "+log, "switchyard up ended with exit code %d: %s", status.ExitStatus(), lastLine(log))
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return exit.Errorf(interruptedCode, "", "interrupted before the job was submitted; `switchyard down` stops the scheduler")
	}
	return exit.Errorf(exit.Unreachable, "read "+log+", and try again", "switchyard up (process %d) did not answer within %s", pid, startPatience)
}

// ready reports whether all services of a `switchyard up` have started.
func ready(ctx context.Context, c installation.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.HTTP+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// lastLine returns the last line of a log.
func lastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
