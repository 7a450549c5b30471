package launcher

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
)

// ProcessesArgument is the hidden argument of a process that tries ShowOwnProcesses.
const ProcessesArgument = "__processes"

// ShowOwnProcesses lets the first process of a namespace see in /proc what is in the namespace, and nothing else.
func ShowOwnProcesses() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("detach the mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("show the processes of the job alone in /proc: %w", err)
	}
	return nil
}

// tryProcesses finds out whether this machine gives a process of a user a namespace of processes. A container's engine
// may cover parts of /proc: then the kernel allows no other one.
func (u User) tryProcesses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", ProcessesArgument)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", []string{}, u.attributes(true, true)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("try a namespace of processes: %w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}
