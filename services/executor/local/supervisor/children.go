package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
	"github.com/switchyard-dl/switchyard/services/executor/local/screen"
)

// startAll starts every process, all in one process group. On an error the caller has to end those that run.
func (s *supervisor) startAll() (err error) {
	s.confine()
	if s.stage, err = newStage(s.launch, s.folder.Path); err != nil {
		return err
	}
	if err := s.claimed(); err != nil {
		return fmt.Errorf("claim %s: %w", s.folder.Path, err)
	}
	for rank := range s.launch.Processes {
		if err := s.start(rank); err != nil {
			return err
		}
	}
	return nil
}

// start starts one program.
func (s *supervisor) start(rank int) error {
	interactive := s.launch.Shell != nil && rank == 0 && s.terminals != nil
	open, attributes := os.Pipe, &syscall.SysProcAttr{Setpgid: true, Pgid: s.group}
	if interactive {
		open, attributes = screen.OpenTerminal, onTerminal()
	}
	out, in, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	files := [3]*os.File{s.stage.nothing, in, in}
	if interactive {
		files[0], s.terminals.own = in, screen.New(out, time.Now())
	}
	pid, err := s.stage.start(s.launch.Processes[rank], files, attributes)
	if err != nil {
		_ = out.Close()
		return err
	}
	if s.group == 0 {
		s.group = pid
	}
	s.live[pid] = rank
	s.copyOutput(rank, out, interactive)
	return nil
}

// copyOutput copies what a program writes to the log, and to those who read it there, until the program has closed it.
func (s *supervisor) copyOutput(rank int, out *os.File, interactive bool) {
	prefix := ""
	if len(s.launch.Processes) > 1 {
		prefix = fmt.Sprintf("[%d] ", rank)
	}
	copied := joblog.NewLines(s.log, prefix)
	s.outputs = append(s.outputs, out)
	var to io.Writer = copied
	if rank == s.firstWorker() && s.proxy.Reads() {
		to = io.MultiWriter(copied, joblog.NewLines(s.proxy, ""))
	}
	if interactive {
		to = io.MultiWriter(to, s.terminals.own)
	}
	s.pipes.Go(func() {
		defer func() { _ = out.Close() }()
		_, _ = io.Copy(to, out)
		copied.Flush()
	})
}

// firstWorker returns the rank of the first process that trains.
func (s *supervisor) firstWorker() int {
	return max(slices.IndexFunc(s.launch.Processes, func(p attempt.Process) bool { return !p.Serves }), 0)
}

// ended is the end of a child.
type ended struct {
	pid    int
	status unix.WaitStatus
}

// collect waits until all children, including adopted orphans, have ended.
func collect(ends chan<- ended) {
	defer close(ends)
	for {
		var e ended
		pid, err := unix.Wait4(-1, &e.status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		case e.status.Exited() || e.status.Signaled():
			e.pid = pid
			ends <- e
		}
	}
}

// sweepInterval is the time between two searches for descendants that are to be killed.
const sweepInterval = 20 * time.Millisecond

// wait returns when no process of the attempt is left.
func (s *supervisor) wait(signals <-chan os.Signal) {
	ends := make(chan ended)
	var collector conc.WaitGroup
	defer collector.Wait()
	collector.Go(func() { collect(ends) })
	// Descendants are searched only when they are to be killed, because reading all processes is expensive.
	var sweep <-chan time.Time
	killing := false
	for {
		if s.failed {
			s.askToEnd()
		}
		select {
		case e, open := <-ends:
			if !open {
				return
			}
			s.note(e)
		case signal := <-signals:
			s.obey(signal)
		case <-s.proxy.Ends():
			s.askToEnd()
		case <-s.look():
			s.checkMemory()
		case asked := <-s.terminals.asks():
			s.answer(asked)
		case <-s.kill:
			killing = true
			s.launch.RemoveContainers(context.Background())
		case <-sweep:
		case <-s.retrySave:
			s.saveStart()
		}
		// A program that has ended has ended: what it left behind is not waited for.
		if killing || len(s.live) == 0 {
			s.killAll()
			sweep = time.After(sweepInterval)
		}
	}
}

// obey does what a signal asks for.
func (s *supervisor) obey(signal os.Signal) {
	if signal != launcher.RetuneSignal {
		s.interrupt()
		return
	}
	if err := s.retune(); err != nil {
		fmt.Fprintf(os.Stderr, "supervisor: %v\n", err)
	}
}

// interrupt ends the attempt because the executor wants it.
func (s *supervisor) interrupt() {
	// An attempt that has failed or finished already ended by itself.
	s.forced = s.forced || !s.failed && !s.finished && len(s.live) > 0
	s.askToEnd()
}

// askToEnd asks the processes to end, once; they are killed after a while.
func (s *supervisor) askToEnd() {
	if s.kill == nil {
		s.signalGroup(unix.SIGTERM)
		if s.launch.Shell != nil {
			s.signalGroup(unix.SIGHUP) // a shell ignores SIGTERM
		}
		s.kill = time.After(time.Duration(s.launch.KillAfterMillis) * time.Millisecond)
	}
}

// hungUp is the status of a shell that has lost its terminal.
const hungUp = 128 + int(unix.SIGHUP)

func (s *supervisor) note(e ended) {
	s.endBeside(e)
	if _, ours := s.live[e.pid]; !ours {
		return
	}
	delete(s.live, e.pid)
	if s.finished {
		return // it was asked to end
	}
	if e.status.Signaled() || e.status.ExitStatus() != 0 {
		s.checkMemory()
	}
	switch {
	case e.status.Signaled():
		s.blame(train.Exit{Signal: signalName(e.status.Signal())})
	case e.status.ExitStatus() != 0:
		s.blame(train.Exit{Code: e.status.ExitStatus()})
	}
	if !s.failed && !s.forced && len(s.live) > 0 && !s.trains() {
		s.finished = true
		s.askToEnd()
	}
}

// trains reports whether a process is left that does not only serve others.
func (s *supervisor) trains() bool {
	for _, rank := range s.live {
		if !s.launch.Processes[rank].Serves {
			return true
		}
	}
	return false
}

// blame keeps the first failure, because what follows is its consequence.
func (s *supervisor) blame(e train.Exit) {
	if !s.failed {
		s.first, s.failed = e, true
	}
}

// signalGroup signals the job's processes. Once all of them have ended, the number of their group may belong to
// another group.
func (s *supervisor) signalGroup(sig unix.Signal) {
	if len(s.live) > 0 {
		_ = unix.Kill(-s.group, sig)
	}
}

// killAll kills all processes of the attempt, wherever they moved: those of its control group and of its process group,
// and all other descendants of this process.
func (s *supervisor) killAll() {
	s.launch.Group.Kill()
	s.signalGroup(unix.SIGKILL)
	pids, err := attempt.Descendants(os.Getpid())
	if err != nil {
		return
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func signalName(s unix.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
