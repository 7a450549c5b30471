package jobs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// startPatience bounds the wait for a scheduler that this command has started.
const startPatience = time.Minute

// connectOrStart connects to the scheduler. If none answers, and nobody has said where it is, it starts one.
func connectOrStart(ctx context.Context, a *console.Console) (*bus.Bus, error) {
	b, err := a.Connect(ctx)
	if err == nil || a.Nats != "" || os.Getenv("SWITCHYARD_NATS") != "" {
		return b, err
	}
	server, err := sibling.FindServer()
	if err != nil {
		return nil, err
	}
	dir := installation.DataDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	path := filepath.Join(dir, "up.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the messages of switchyard up: %w", err)
	}
	defer func() { _ = log.Close() }()
	up := exec.Command(server, "up")
	up.Args[0] = "switchyard"
	up.Stdout, up.Stderr, up.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true} // it outlives this terminal
	if err := up.Start(); err != nil {
		return nil, fmt.Errorf("start switchyard up: %w", err)
	}
	fmt.Fprintf(a.Stderr, "no scheduler answers: started `switchyard up` as process %d; its messages are in %s\n", up.Process.Pid, path)
	return awaitUp(ctx, a, up.Process.Pid, path)
}

// awaitUp waits until a server has written down its address.
func awaitUp(ctx context.Context, a *console.Console, pid int, log string) (*bus.Bus, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for range tick.Every(ctx, 50*time.Millisecond) {
		if c, err := installation.ReadContext(a.ContextPath()); err == nil && c.PID == pid {
			return a.Connect(ctx)
		}
		var status unix.WaitStatus
		if done, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err == nil && done == pid {
			return nil, exit.Errorf(exit.Unreachable, "read "+log, "switchyard up ended at once with exit code %d", status.ExitStatus())
		}
	}
	return nil, exit.Errorf(exit.Unreachable, "read "+log+", and try again", "switchyard up (process %d) did not answer within %s", pid, startPatience)
}
