package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// cleanupTime bounds the commands that end containers.
const cleanupTime = 20 * time.Second

// startAll starts every process, all in one group. On an error those that run are left to the caller.
func (s *shim) startAll() error {
	var troubles []*os.File
	for rank := range s.launch.Processes {
		trouble, err := s.start(rank)
		if err != nil {
			return fmt.Errorf("start process %d: %w", rank, err)
		}
		troubles = append(troubles, trouble)
	}
	var errs []error
	for _, t := range troubles {
		words, err := io.ReadAll(io.LimitReader(t, 4<<10))
		_ = t.Close()
		if err == nil {
			err = errorOf(words)
		}
		errs = append(errs, err)
	}
	for _, err := range errs {
		if err != nil {
			return err // the others say the same
		}
	}
	return nil
}

// start starts one process on its way to the job's program. What comes out of the file that is returned is why it could not get there.
func (s *shim) start(rank int) (*os.File, error) {
	trouble, troubleIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = troubleIn.Close() }()
	out, in, err := os.Pipe()
	if err != nil {
		_ = trouble.Close()
		return nil, err
	}
	defer func() { _ = in.Close() }()
	cmd := exec.Command("/proc/self/exe", rankArgument, s.dir, strconv.Itoa(rank))
	// The marker is there from the first moment on, and nothing of the supervisor's own surroundings.
	cmd.Env = []string{s.launch.Marker}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = in, in, []*os.File{troubleIn}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: s.group, Pdeathsig: syscall.SIGKILL}
	s.launch.Sandbox.apply(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		_, _ = trouble.Close(), out.Close()
		return nil, err
	}
	pid := cmd.Process.Pid
	if s.group == 0 {
		s.group = pid
	}
	s.live[pid] = rank
	// The supervisor collects all ends itself, those of orphans too.
	_ = cmd.Process.Release()
	prefix := ""
	if len(s.launch.Processes) > 1 {
		prefix = fmt.Sprintf("[%d] ", rank)
	}
	copied := joblog.NewLines(s.log, prefix)
	s.outs = append(s.outs, out)
	var to io.Writer = copied
	if rank == 0 && s.herald != nil {
		to = io.MultiWriter(copied, joblog.NewLines(s.herald, ""))
	}
	s.pipes.Go(func() {
		defer func() { _ = out.Close() }()
		_, _ = io.Copy(to, out)
		copied.Flush()
	})
	return trouble, nil
}

// ended is the end of a child.
type ended struct {
	pid    int
	status unix.WaitStatus
}

// collect waits for children, the orphans that were adopted too, until there are none left.
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

// sweepAgain is the time between two looks for descendants that are to be killed.
const sweepAgain = 20 * time.Millisecond

// wait returns when no process of the attempt is left.
func (s *shim) wait(signals <-chan os.Signal) {
	ends := make(chan ended)
	var collector conc.WaitGroup
	defer collector.Wait()
	collector.Go(func() { collect(ends) })
	patience := time.Duration(s.launch.KillAfterMillis) * time.Millisecond
	var kill <-chan time.Time // set when the processes were asked to end
	// Descendants are looked for only when they are to be killed: reading all processes is not for free.
	var sweep <-chan time.Time
	again := time.NewTicker(writeAgain)
	defer again.Stop()
	if !s.untold {
		again.Stop()
	}
	leave := func() {
		if kill == nil {
			s.signalGroup(unix.SIGTERM)
			kill = time.After(patience)
		}
	}
	killing := false
	if s.blamed {
		leave()
	}
	for {
		select {
		case e, open := <-ends:
			if !open {
				return
			}
			s.note(e)
			if s.blamed {
				leave()
			}
		case <-signals:
			// An attempt that is over already ended by itself.
			s.forced = s.forced || !s.blamed && len(s.live) > 0
			leave()
		case <-kill:
			killing = true
			runCleanup(context.Background(), s.launch.Cleanup)
		case <-sweep:
		case <-again.C:
			if s.tellStart(); !s.untold {
				again.Stop()
			}
		}
		// A program that has ended has ended: nothing that it left behind is waited for.
		if killing || len(s.live) == 0 {
			s.killAll()
			sweep = time.After(sweepAgain)
		}
	}
}

// note takes down the end of a child.
func (s *shim) note(e ended) {
	if _, ours := s.live[e.pid]; !ours {
		return
	}
	delete(s.live, e.pid)
	switch {
	case e.status.Signaled():
		s.blame(train.Exit{Signal: signalName(e.status.Signal())})
	case e.status.ExitStatus() != 0:
		s.blame(train.Exit{Code: e.status.ExitStatus()})
	}
}

// blame keeps the first trouble: what follows is its consequence.
func (s *shim) blame(e train.Exit) {
	if !s.blamed {
		s.first, s.blamed = e, true
	}
}

// signalGroup signals the job's processes. Once all of them have ended the number of their group may belong to somebody else.
func (s *shim) signalGroup(sig unix.Signal) {
	if len(s.live) > 0 {
		_ = unix.Kill(-s.group, sig)
	}
}

// killAll kills the group and whatever else descends from this process, however it tried to get away.
func (s *shim) killAll() {
	s.signalGroup(unix.SIGKILL)
	pids, err := descendants(os.Getpid())
	if err != nil {
		return
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// runCleanup ends what runs elsewhere, i.e. containers. That it was gone already is no trouble.
func runCleanup(ctx context.Context, commands [][]string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	for _, c := range commands {
		_ = exec.CommandContext(ctx, c[0], c[1:]...).Run()
	}
}
