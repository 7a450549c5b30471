package system

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const detach = "\x1d"

// ends waits for the end of a program on a terminal and checks its exit code.
func (c *cluster) ends(at *terminal, code int) {
	c.t.Helper()
	c.awaitEnd(at)
	if got := at.cmd.ProcessState.ExitCode(); got != code {
		c.t.Errorf("exit code %d, want %d:\n%s", got, code, at.screen())
	}
}

// A shell is a job on the person's terminal: keys, interrupts and sizes reach it, it outlives the scheduler and the
// terminal, only its user comes back to it, and its status is that of the command.
func TestAShellIsAJobOnATerminal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.env = []string{"SHELL=/bin/sh", "TERM=vt100"}
	c.flags = []string{"--cpu-slots", "2"}
	c.start("up")
	c.connect()
	at := c.onTerminal("shell", "--id", "mine", "--keep", "--devices", "1")
	c.answer(at, "Ctrl-] detaches", "kept=secret; echo sum$((40+2)) on $SWITCHYARD_DEVICES\n")
	c.answer(at, "sum42 on cpu:", "")
	if err := unix.IoctlSetWinsize(int(at.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 77, Row: 11}); err != nil {
		t.Fatal(err)
	}
	c.answer(at, "", "until [ \"$(stty size)\" = '11 77' ]; do :; done; echo fits$((1+1)); sleep 1000\n")
	c.answer(at, "fits2", "")
	c.eventually("Ctrl-C ends the program in the shell", func() error {
		_, _ = io.WriteString(at.master, interrupt+"echo after$((2+2))\n")
		if !strings.Contains(at.screen(), "after4") {
			return errors.New("it sleeps")
		}
		return nil
	})
	c.kill("up", syscall.SIGKILL)
	c.answer(at, "the connection is lost; attaching again", "")
	c.start("up")
	c.eventually("the shell is there again", func() error {
		_, _ = io.WriteString(at.master, "echo still-$kept\n")
		if !strings.Contains(at.screen(), "still-secret") {
			return errors.New("not yet")
		}
		return nil
	})
	c.answer(at, "", detach)
	c.ends(at, 0)
	c.env = append(c.env, "SWITCHYARD_CONTEXT="+filepath.Join(c.dir, "other", "context.json"))
	other := c.onTerminal("attach", "mine")
	c.answer(other, "this terminal does not have the job's key", "")
	c.ends(other, 1)
	c.env = c.env[:len(c.env)-1]
	again := c.onTerminal("attach", "mine")
	c.answer(again, "Ctrl-] detaches", "echo again-$kept; exit 3\n")
	c.answer(again, "again-secret", "")
	c.ends(again, 3)
	if j := c.await("the shell has ended", allEnded(1))["mine"]; j.State != train.StateFailed || j.ExitCode == nil || *j.ExitCode != 3 || j.Attempt != 1 {
		t.Errorf("%+v", j)
	}
}

// The job of a terminal that is closed ends. Beside any other job a shell opens in its folder and on its devices, and
// ends with it.
func TestATerminalIsAttachedToAJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.env = []string{"SHELL=/bin/sh", "TERM=vt100"}
	c.flags = []string{"--cpu-slots", "2"}
	c.start("up")
	c.connect()
	closed := c.onTerminal("shell", "--id", "closed")
	c.answer(closed, "Ctrl-] detaches", "")
	if err := closed.cmd.Process.Signal(syscall.SIGHUP); err != nil { // as the kernel does when a terminal is closed
		t.Fatal(err)
	}
	c.await("the job of the closed terminal is cancelled", state("closed", train.StateCancelled))
	work := c.dir
	c.submitSpec("plain", train.Spec{Command: []string{"sleep", "1000"}, WorkDir: work, Env: map[string]string{"MINE": "yes"}})
	c.await("the job runs", state("plain", train.StateRunning))
	beside := c.onTerminal("attach", "plain", "--", "sh", "-c", `echo "$MINE $TERM $SWITCHYARD_JOB" && pwd && exit 5`)
	c.answer(beside, fmt.Sprintf("yes vt100 plain\r\n%s\r\n", work), "")
	c.ends(beside, 5)
	shell := c.onTerminal("attach", "plain")
	c.answer(shell, "Ctrl-] detaches", "echo pid$((100+1))\n")
	c.answer(shell, "pid101", "")
	if code, out := c.command("cancel", "plain"); code != 0 {
		t.Errorf("cancel: %d %s", code, out)
	}
	c.ends(shell, 137)
	if code, out := c.command("attach", "plain"); code != 2 || !strings.Contains(out, "needs a terminal") {
		t.Errorf("without a terminal: %d %s", code, out)
	}
}
