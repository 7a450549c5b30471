package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that was started: its arguments, so that it can be started again, and who it became.
type process struct {
	Args []string `json:"args"`
	PID  int      `json:"pid"`
	// StartTicks is when the process began, by the kernel. Another process with the same number began at another time.
	StartTicks uint64 `json:"start_ticks"`
}

// ErrUnknownProgram says that the cluster has no such program.
var ErrUnknownProgram = errors.New("this cluster runs no such program")

func (c *Cluster) processFile(program string) string { return c.path(runDir, program+".json") }

func (c *Cluster) readProcess(program string) (process, error) {
	var p process
	data, err := os.ReadFile(c.processFile(program))
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("find %s: %w", program, ErrUnknownProgram)
	}
	if err != nil {
		return p, fmt.Errorf("read process of %s: %w", program, err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("read process of %s: %w", program, err)
	}
	return p, nil
}

func (c *Cluster) writeProcess(program string, p process) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode process of %s: %w", program, err)
	}
	if err := os.WriteFile(c.processFile(program), data, 0o600); err != nil {
		return fmt.Errorf("write process of %s: %w", program, err)
	}
	return nil
}

// start runs args as program, apart from this process: it goes on when this one ends, and writes to a log of its own.
func (c *Cluster) start(program string, args []string) error {
	command, closeLog, err := c.command(program, args)
	if err != nil {
		return err
	}
	defer closeLog()
	return c.launch(program, args, command)
}

// command places args where the cluster's programs live: in its control group and, with a node, in the node's
// namespaces.
func (c *Cluster) command(program string, args []string) (*exec.Cmd, func(), error) {
	log, err := os.OpenFile(c.LogFile(program), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open log of %s: %w", program, err)
	}
	placed, err := c.inNode(args)
	if err != nil {
		_ = log.Close()
		return nil, nil, err
	}
	command := exec.Command(placed[0], placed[1:]...)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return command, func() { _ = log.Close() }, nil
}

func (c *Cluster) launch(program string, args []string, command *exec.Cmd) error {
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	pid := command.Process.Pid
	ticks, _, err := processStat(pid)
	if err != nil {
		return fmt.Errorf("look at %s: %w", program, err)
	}
	if err := command.Process.Release(); err != nil {
		return fmt.Errorf("let %s go: %w", program, err)
	}
	return c.writeProcess(program, process{Args: args, PID: pid, StartTicks: ticks})
}

// alive reports whether the process runs. A zombie does not.
func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	ticks, state, err := processStat(p.PID)
	return err == nil && ticks == p.StartTicks && state != 'Z' && state != 'X'
}

// stop asks the process to end, and ends it after patience.
func (p process) stop(patience time.Duration) error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !p.alive() {
			return nil
		}
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal process %d: %w", p.PID, err)
		}
		if poll(patience, func() bool { return !p.alive() }) {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end", p.PID)
}

// processStat reads when a process began and its state from the kernel.
func processStat(pid int) (startTicks uint64, state byte, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read state of process %d: %w", pid, err)
	}
	// The second field is the name in parentheses, which may hold anything; what follows the last one is fixed.
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	const startField = 19 // field 22 of proc(5), counted from the third
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("read state of process %d: %d fields", pid, len(fields))
	}
	startTicks, err = strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read state of process %d: %w", pid, err)
	}
	return startTicks, fields[0][0], nil
}

// poll asks done every few milliseconds until it says yes or patience is over.
func poll(patience time.Duration, done func() bool) bool {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			return false
		}
		<-ticker.C
	}
	return true
}
