package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
)

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
