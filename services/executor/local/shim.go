package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
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

// pipeTime is how long output is waited for when all processes have ended: somebody else may hold the pipe.
const pipeTime = 2 * time.Second

// claimPatience bounds how long a supervisor waits for whoever is looking at the lock.
const claimPatience = 10 * time.Second

// shim supervises one attempt.
type shim struct {
	dir    string
	launch Launch
	log    *joblog.Log
	// live are the processes that were started and have not ended, by process number, with their rank; group is their process group.
	live  map[int]int
	group int
	// first is the end that decided the attempt; blamed is set once there is one.
	first  train.Exit
	blamed bool
	forced bool
	pipes  conc.WaitGroup
	outs   []*os.File
	// herald tells of epochs that the programs do not tell of themselves; nil where they do.
	herald *herald
	// startedAt is when all programs had been started; untold is set while that is not on disk.
	startedAt time.Time
	untold    bool
}

// writeAgain is how long after a failed write (a full disk) the next one is tried.
const writeAgain = time.Second

// runShim is the life of a supervisor; it gives the exit status of its process.
func runShim(args []string) int {
	// The kernel kills the job's processes when the thread that started them ends: this one stays until the end.
	runtime.LockOSThread()
	if len(args) != 1 {
		fmt.Fprintf(os.Stderr, "supervisor: want a folder, have %q\n", args)
		return 2
	}
	if err := supervise(args[0]); err != nil {
		fmt.Fprintf(os.Stderr, "supervisor: %v\n", err)
		return 1
	}
	return 0
}

func supervise(dir string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	// Not signal.Ignore: the job's processes would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	lock, err := takeOver(dir)
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	s := &shim{dir: dir, live: map[int]int{}}
	launch, found, err := readJSON[Launch](filepath.Join(dir, launchName))
	if err != nil || !found {
		return s.finish(train.Exit{Code: 127, Message: fmt.Sprintf("no launch file: %v", err)})
	}
	s.launch = launch
	s.log, err = joblog.Open(launch.Output, launch.LimitBytes)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return s.giveUp(err)
	}
	if err != nil {
		return s.finish(train.Exit{Code: 127, Message: err.Error()})
	}
	s.log.Begin(launch.Header)
	s.herald = newHerald(launch.Told)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return s.finish(train.Exit{Code: 127, Message: fmt.Sprintf("become the parent of orphans: %v", err)})
	}
	// Nothing is started before it is on disk who supervises: nobody could end it.
	if err := s.declare(time.Time{}); err != nil {
		return s.giveUp(err)
	}
	if err := s.startAll(); err != nil {
		s.blame(train.Exit{Code: 127, Message: err.Error()})
	} else {
		s.startedAt, s.untold = time.Now().UTC(), true
		s.tellStart()
	}
	s.wait(signals)
	if s.blamed || s.forced {
		runCleanup(context.Background(), s.launch.Cleanup)
	}
	return s.finish(s.first)
}

// takeOver makes this process the one supervisor of the attempt; nil where another one is or was.
func takeOver(dir string) (*os.File, error) {
	deadline := time.NewTimer(claimPatience)
	defer deadline.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		lock, err := tryLock(filepath.Join(dir, lockName))
		if err != nil {
			return nil, err
		}
		if lock != nil {
			taken, err := claim(dir)
			if err != nil || !taken {
				_ = lock.Close()
				return nil, err
			}
			return lock, nil
		}
		if exists(filepath.Join(dir, claimName)) {
			return nil, nil
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return nil, fmt.Errorf("lock %s: held by somebody who does not claim it", dir)
		}
	}
}

// giveUp gives the attempt back before anything was started, so that it can be started once there is room on the disk.
func (s *shim) giveUp(err error) error {
	return errors.Join(err, os.Remove(filepath.Join(s.dir, claimName)))
}

// persist tries to write until it works or the folder is gone: a full disk passes, and what is not written would be taken for a loss.
func (s *shim) persist(write func() error) error {
	again := time.NewTicker(writeAgain)
	defer again.Stop()
	for said := false; ; said = true {
		err := write()
		if err == nil || !exists(s.dir) {
			return err
		}
		if !said {
			fmt.Fprintf(os.Stderr, "supervisor: trying again: %v\n", err)
		}
		<-again.C
	}
}

// tellStart writes down that the programs run. Where that fails it is tried again later; the exit tells it in any case.
func (s *shim) tellStart() {
	s.untold = s.declare(s.startedAt) != nil
}

// declare says who supervises, and since when the programs run.
func (s *shim) declare(startedAt time.Time) error {
	self, err := kernel.Process(os.Getpid())
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(s.dir, shimName), shimFile{PID: self.PID, PIDStart: self.Start, BootID: bootID(), StartedAt: startedAt})
}

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

// finish records the end; it is on disk when this returns. As long as it cannot be written this process stays and holds the lock: a job that has finished
// must not be taken for lost and run again. A stop does not change what happened; whoever cannot wait kills the supervisor.
func (s *shim) finish(e train.Exit) error {
	if s.forced {
		e.Forced = true
	}
	if s.log != nil {
		for _, out := range s.outs {
			_ = out.SetReadDeadline(time.Now().Add(pipeTime))
		}
		s.pipes.Wait()
		s.herald.close(s.log)
		if e.Code != 0 || e.Signal != "" || e.Forced {
			e.LogTail = s.log.Tail()
		}
		if err := s.log.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "supervisor: log: %v\n", err)
		}
	}
	end := exitFile{Exit: e, ExitedAt: time.Now().UTC(), StartedAt: s.startedAt}
	return s.persist(func() error { return writeJSON(filepath.Join(s.dir, exitName), end) })
}
