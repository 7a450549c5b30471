package mps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

const (
	logDirName = "CUDA_MPS_LOG_DIRECTORY"
	// pidFile is where the daemon writes its process number, below the folder of its pipes.
	pidFile = control + ".pid"
	// checkInterval is how often a supervised daemon is asked.
	checkInterval = 5 * time.Second
	// leastDelay and mostDelay bound the time between two starts. It doubles while the daemon does not stay.
	leastDelay, mostDelay = time.Second, 5 * time.Minute
	// startTimeout is how long the daemon may take to be in the background.
	startTimeout = 20 * time.Second
	// quitTimeout is how long it may take to end its servers.
	quitTimeout = 10 * time.Second
)

// Supervisor starts the daemon of a node, starts it again if it ends or no longer answers, and stops it with the agent.
// A daemon that something else started is used as it is: it is neither restarted nor stopped.
//
// The daemon runs in the background, so it outlives an agent that is killed; the next agent recognises it. At the end
// of the agent it is left running if it still has clients: they are jobs, which outlive the agent too.
type Supervisor struct {
	daemon *Daemon
	// logDir is the folder of the daemon's logs, mark the file that says which process was started.
	logDir, mark string
	proc         proc.Root
	log          *slog.Logger

	next  time.Time
	delay time.Duration
	last  string
}

// Supervise makes a supervisor that remembers what it started in a folder.
func Supervise(d *Daemon, dir, logDir string, root proc.Root, log *slog.Logger) *Supervisor {
	d.every = checkInterval
	if logDir == "" {
		logDir = filepath.Join(dir, "mps-log")
	}
	return &Supervisor{daemon: d, logDir: logDir, mark: filepath.Join(dir, "mps-daemon.json"), proc: root, log: log, delay: leastDelay}
}

// Run supervises until ctx ends.
func (s *Supervisor) Run(ctx context.Context) error {
	for now := range tick.Every(ctx, leastDelay) {
		s.step(ctx, now)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*quitTimeout)
	defer cancel()
	if err := s.stop(end); err != nil {
		s.log.Warn("the MPS daemon is left running", "error", err)
	}
	return nil
}

// step asks the daemon, and starts it if it is not there.
func (s *Supervisor) step(ctx context.Context, now time.Time) {
	s.daemon.Ask(ctx, now)
	switch {
	case s.daemon.Dir() != "":
		s.delay = leastDelay
		s.say("")
		return
	case now.Before(s.next), s.daemon.silent():
		return
	}
	s.next, s.delay = now.Add(s.delay), min(2*s.delay, mostDelay)
	if err := s.start(ctx); err != nil && ctx.Err() == nil {
		s.say(err.Error())
		return
	}
	s.daemon.askAgain(ctx, now)
}

// say logs a problem when it changes.
func (s *Supervisor) say(problem string) {
	if problem != "" && problem != s.last {
		s.log.Warn("the MPS daemon does not run", "error", problem)
	}
	s.last = problem
}

// start starts the daemon in the background. What an earlier start left, and does not answer, is ended before.
func (s *Supervisor) start(ctx context.Context) error {
	if old, ours := s.own(); ours {
		if err := s.end(ctx, old); err != nil {
			return err
		}
		s.log.Warn("the MPS daemon did not answer and was ended", "pid", old.PID)
	}
	// Programs of any user connect to the pipes; the daemon gives each pipe its own mode.
	for _, dir := range []string{s.daemon.dir, s.logDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the folder of the MPS daemon: %w", err)
		}
	}
	out, err := s.daemon.run(ctx, startTimeout, "", []string{logDirName + "=" + s.logDir}, "-d")
	if err != nil {
		return fmt.Errorf("start %s -d: %w: %s", control, err, bytes.TrimSpace(out))
	}
	started, err := s.running()
	if err != nil {
		return err
	}
	data, err := json.Marshal(started)
	if err == nil {
		err = installation.WriteFile(s.mark, data)
	}
	if err != nil {
		return fmt.Errorf("remember the MPS daemon: %w", err)
	}
	s.log.Info("the MPS daemon was started", "pid", started.PID, "pipes", s.daemon.dir, "logs", s.logDir)
	return nil
}

// end kills a process and waits until it is gone.
func (s *Supervisor) end(ctx context.Context, p process) error {
	if err := s.proc.Signal(p.PID, p.Start, unix.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for range tick.Every(ctx, timeout/100) {
		if now, err := s.running(); err != nil || now != p {
			break
		}
	}
	return nil
}

// process identifies a process: its number, and when it began.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// running returns the process of the daemon, as its own file says.
func (s *Supervisor) running() (process, error) {
	text, err := os.ReadFile(filepath.Join(s.daemon.dir, pidFile))
	if err != nil {
		return process{}, fmt.Errorf("find the process of the MPS daemon: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return process{}, fmt.Errorf("find the process of the MPS daemon: %w", err)
	}
	stat, err := s.proc.Process(pid)
	if err != nil {
		return process{}, err
	}
	if stat.Over() {
		return process{}, fmt.Errorf("find the process of the MPS daemon: %d has ended", pid)
	}
	return process{PID: pid, Start: stat.Start}, nil
}

// own returns the daemon if it lives and an agent of this folder started it.
func (s *Supervisor) own() (process, bool) {
	var marked process
	data, err := os.ReadFile(s.mark)
	if err != nil || json.Unmarshal(data, &marked) != nil {
		return process{}, false
	}
	now, err := s.running()
	return now, err == nil && now == marked
}

// stop ends the daemon if it was started here and has no clients.
func (s *Supervisor) stop(ctx context.Context) error {
	old, ours := s.own()
	if !ours {
		return nil
	}
	clients, err := s.clients(ctx)
	if err != nil {
		return err
	}
	if clients > 0 {
		return fmt.Errorf("%d programs use it; the next start of the agent takes it over", clients)
	}
	if out, err := s.daemon.run(ctx, quitTimeout, "quit\n", nil); err != nil {
		return fmt.Errorf("quit: %w: %s", err, bytes.TrimSpace(out))
	}
	s.log.Info("the MPS daemon was stopped", "pid", old.PID)
	if err := os.Remove(s.mark); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget the MPS daemon: %w", err)
	}
	return nil
}

// clients counts the programs that use the daemon's servers.
func (s *Supervisor) clients(ctx context.Context) (int, error) {
	servers, err := s.list(ctx, "get_server_list")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, server := range servers {
		clients, err := s.list(ctx, "get_client_list "+server)
		if err != nil {
			return 0, err
		}
		n += len(clients)
	}
	return n, nil
}

// list returns the numbers that a command prints, one a line.
func (s *Supervisor) list(ctx context.Context, command string) ([]string, error) {
	out, err := s.daemon.run(ctx, timeout, command+"\n", nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return strings.Fields(string(out)), nil
}
