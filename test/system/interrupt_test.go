package system

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// terminal is a pseudo-terminal with a program on it.
type terminal struct {
	cmd    *exec.Cmd
	master *os.File
	mu     sync.Mutex
	said   bytes.Buffer
	ended  chan struct{}
}

// onTerminal starts a command line as a person does: its input, output and interrupts are those of a terminal.
func (c *cluster) onTerminal(args ...string) *terminal {
	c.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer screen.Close()
	t := &terminal{cmd: exec.CommandContext(c.ctx, filepath.Join(binaries, "switchyard"), args...), master: master, ended: make(chan struct{})}
	t.cmd.Dir, t.cmd.Env = c.dir, append(c.environ(), "SWITCHYARD_NATS="+c.url())
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = screen, screen, screen
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := t.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(t.ended)
		_, _ = io.Copy(t, master) // until the program has closed the terminal
		_ = t.cmd.Wait()
	}()
	return t
}

// Write keeps what the program says.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.said.Write(p)
}

func (t *terminal) screen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.said.String()
}

// await waits until the program has said a text, and types keys.
func (c *cluster) answer(t *terminal, said, keys string) {
	c.t.Helper()
	c.eventually("the terminal says "+said, func() error {
		if text := t.screen(); !strings.Contains(text, said) {
			return fmt.Errorf("it says %q", text)
		}
		return nil
	})
	if _, err := io.WriteString(t.master, keys); err != nil {
		c.t.Fatal(err)
	}
}

// awaitEnd waits until the program has ended. If that takes too long, it says what the program does.
func (c *cluster) awaitEnd(t *terminal) {
	c.t.Helper()
	select {
	case <-t.ended:
	case <-time.After(time.Minute):
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.cmd.Process.Pid))
		_ = t.cmd.Process.Signal(unix.SIGQUIT) // it prints its goroutines
		select {
		case <-t.ended:
		case <-time.After(10 * time.Second): // then something else holds the terminal
		}
		c.t.Fatalf("the program has not ended within a minute: %s\n%s", t.screen(), status)
	}
}

const interrupt = "\x03"

// Ctrl-C asks what becomes of the job: it goes on unless the person says otherwise, also if the person is impatient. A
// program that is not at a terminal is answered as docker and srun answer: the job ends with the command. `down` stops
// the scheduler alone.
func TestCtrlCAsksWhatBecomesOfTheJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.flags = []string{"--cpu-slots", "4"}
	c.start("up")
	c.connect()
	run := func(id string) []string { return []string{"run", "--id", id, "sh", "-c", "echo begun; exec sleep 600"} }
	cases := []struct {
		id, keys string
		code     int
		state    train.State
	}{
		{"kept", "\n", 130, train.StateRunning},
		{"impatient", interrupt, -1, train.StateRunning}, // the signal ends the command
		{"dropped", "y\n", 130, train.StateCancelled},
	}
	for _, tc := range cases {
		at := c.onTerminal(run(tc.id)...)
		c.answer(at, "begun", "")
		c.answer(at, tc.id+": running", interrupt)
		c.answer(at, "job "+tc.id+" runs on. Cancel it? [y/N] ", tc.keys)
		c.awaitEnd(at)
		c.await(tc.id+" is "+string(tc.state), state(train.JobID(tc.id), tc.state))
		if code := at.cmd.ProcessState.ExitCode(); code != tc.code {
			t.Errorf("%s: exit code %d, want %d: %s", tc.id, code, tc.code, at.screen())
		}
	}
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		id := fmt.Sprint("piped-", code)
		cmd := exec.CommandContext(c.ctx, filepath.Join(binaries, "switchyard"), run(id)...)
		cmd.Dir, cmd.Env = c.dir, append(c.environ(), "SWITCHYARD_NATS="+c.url())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c.await(id+" is running", state(train.JobID(id), train.StateRunning))
		_ = cmd.Process.Signal(signal)
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: exit code %d, want %d", id, got, code)
		}
		c.await(id+" is cancelled", state(train.JobID(id), train.StateCancelled))
	}
	code, out := c.command("down")
	if code != 0 || !strings.Contains(out, "2 jobs run on") {
		t.Errorf("down: exit code %d: %s", code, out)
	}
	if left := len(processes(c.owns)); left == 0 {
		t.Error("the jobs have ended with the scheduler")
	}
	_ = c.procs["up"].Wait()
	delete(c.procs, "up")
	if code, out = c.command("down"); code != 0 || !strings.Contains(out, "no `switchyard up` runs here") {
		t.Errorf("down again: exit code %d: %s", code, out)
	}
}
