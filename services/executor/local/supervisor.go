package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/horovod"
	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
	"github.com/switchyard-dl/switchyard/services/executor/local/proxy"
	"github.com/switchyard-dl/switchyard/services/executor/local/screen"
)

// pipeTime is how long output is waited for after all processes have ended; another process may hold the pipe.
const pipeTime = 2 * time.Second

// claimPatience bounds how long a supervisor waits for a process that holds the lock only to look.
const claimPatience = 10 * time.Second

// supervisor supervises one attempt.
type supervisor struct {
	dir    string
	launch Launch
	log    *joblog.Log
	stage  *stage
	// live maps the processes that were started and have not ended to their rank, by process number; group is their
	// process group.
	live  map[int]int
	group int
	// first is the end that decided the attempt; failed is set once there is one. finished is set once only processes
	// that serve others are left.
	first    train.Exit
	failed   bool
	finished bool
	forced   bool
	pipes    conc.WaitGroup
	outputs  []*os.File
	// terminals is nil if the attempt has none. beside are the screens of programs beside the job's, by process number.
	terminals *terminals
	beside    map[int]*screen.Screen
	// horovod is the rendezvous of the programs; nil if they have none.
	horovod *horovod.Server
	// endRelay ends what leads from a container to the job API.
	endRelay func()
	// proxy calls the job API for the programs; nil if it has nothing to report.
	proxy *proxy.Proxy
	// bounded is set if the kernel bounds the memory of the programs. looks ticks when it is to be looked at; nil if it
	// has no bound.
	bounded bool
	looks   *time.Ticker
	// kill fires when processes that were asked to end have to be killed; it is nil until they are asked.
	kill <-chan time.Time
	// startedAt is when all programs had been started. retrySave fires when saving it has to be tried again.
	startedAt time.Time
	retrySave <-chan time.Time
	// shared is set if the executor is another user, who reads the files through their group.
	shared bool
}

// retryWrite is the delay after a failed write (a full disk) before the next try.
const retryWrite = time.Second

func supervise(dir string, shared bool) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	if shared {
		signal.Notify(signals, launcher.RetuneSignal)
	}
	// signal.Ignore would be inherited by the job's processes.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	s := &supervisor{dir: dir, endRelay: func() {}, live: map[int]int{}, beside: map[int]*screen.Screen{}, shared: shared}
	// Nothing is started before the claim and the supervisor's process number are on disk: nobody could end it.
	lock, err := takeOver(dir, func() error { return s.declare(time.Time{}) })
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if s.launch, err = readLaunch(dir); err != nil {
		return s.finish(train.Exit{Code: 127, Message: err.Error()})
	}
	launch := s.launch
	s.log, err = joblog.Open(launch.Output, launch.LimitBytes)
	if passes(err) {
		return s.giveUp(err)
	}
	if err != nil {
		return s.finish(train.Exit{Code: 127, Message: err.Error()})
	}
	if shared {
		_ = os.Chmod(launch.Output, sharedMode)
	}
	s.log.Begin(launch.Header)
	s.proxy = proxy.New(launch.Proxy, s.log)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return s.finish(train.Exit{Code: 127, Message: fmt.Sprintf("become the parent of orphans: %v", err)})
	}
	if err := s.begin(); err != nil {
		s.blame(unstarted(err))
	}
	defer s.horovod.Close()
	defer func() { s.endRelay() }()
	s.wait(signals)
	if s.failed || s.forced {
		s.launch.removeContainers(context.Background())
	}
	return s.finish(s.first)
}

// begin starts the programs, and what they and people need to reach each other.
func (s *supervisor) begin() (err error) {
	if s.terminals, err = openTerminals(s.dir); err != nil {
		if s.launch.Shell != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "supervisor: %v\n", err) // the job runs without
	} else {
		s.terminals.key, s.terminals.held = s.launch.TerminalKey, s.launch.Held
	}
	if s.endRelay, err = s.launch.Relay.serve(); err != nil {
		s.endRelay = func() {}
		return err
	}
	// Another process may have taken the port; few programs need the rendezvous.
	if s.horovod, err = horovod.Serve(s.launch.HorovodPort, len(s.launch.Processes)); err != nil {
		_, _ = fmt.Fprintf(s.log, "[switchyard: %v]\n", err)
	}
	if err := s.startAll(); err != nil {
		return err
	}
	s.startedAt = time.Now().UTC()
	s.saveStart()
	s.tellStarted()
	s.proxy.Watch()
	s.terminals.serve()
	s.watchScreen()
	return nil
}

// takeOver makes this process the one supervisor of the attempt; it returns nil if another one is or was.
func takeOver(dir string, declare func() error) (*os.File, error) {
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
			taken, err := claim(dir, declare)
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
			return nil, fmt.Errorf("lock %s: held by a process that does not claim it", dir)
		}
	}
}

// giveUp releases the claim before anything was started, so that the attempt can be started once the disk has room.
func (s *supervisor) giveUp(err error) error {
	return errors.Join(err, os.Remove(filepath.Join(s.dir, claimName)))
}

// persist retries a write until it works or the folder is gone. A full disk passes, and an exit that is not written
// would be taken for a loss.
func (s *supervisor) persist(write func() error) error {
	again := time.NewTicker(retryWrite)
	defer again.Stop()
	for reported := false; ; reported = true {
		err := write()
		if err == nil || !exists(s.dir) {
			return err
		}
		if !reported {
			fmt.Fprintf(os.Stderr, "supervisor: trying again: %v\n", err)
		}
		<-again.C
	}
}

// saveStart records that the programs run. If that fails it is retried later; the exit file records it in any case.
func (s *supervisor) saveStart() {
	if s.retrySave = nil; s.declare(s.startedAt) != nil {
		s.retrySave = time.After(retryWrite)
	}
}

// tellStarted closes the pipe at whose other end the executor waits. Without it, the executor looks now and then.
func (s *supervisor) tellStarted() { _ = unix.Dup3(int(s.stage.nothing.Fd()), 0, 0) }

// declare records who supervises and when the programs started.
func (s *supervisor) declare(startedAt time.Time) error {
	self, err := kernel.Process(os.Getpid())
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(s.dir, supervisorName), supervisorFile{PID: self.PID, PIDStart: self.Start, BootID: bootID(), StartedAt: startedAt}, replacing(s.shared))
}

// finish records the end; it is on disk when finish returns. Until it can be written, this process stays and holds
// the lock, because a job that has finished must not be taken for lost and run again. A stop does not change what
// happened; an operator who cannot wait kills the supervisor.
func (s *supervisor) finish(e train.Exit) error {
	if s.forced {
		e.Forced = true
	}
	if s.log != nil {
		for _, out := range s.outputs {
			_ = out.SetReadDeadline(time.Now().Add(pipeTime))
		}
		s.pipes.Wait()
		s.proxy.Close(e.Code == 0 && e.Signal == "" && !e.Forced)
		if e.Code != 0 || e.Signal != "" || e.Forced {
			e.LogTail = s.log.Tail()
		}
		switch { // as shells report it; nothing else in the output does
		case e.Reason.Code == train.OutOfMemory:
			s.log.Begin(fmt.Sprintf("[switchyard: killed: %s]", e.Reason.Message))
		case e.Signal != "" && !e.Forced:
			s.log.Begin(fmt.Sprintf("[switchyard: killed by %s]", e.Signal))
		}
		if err := s.log.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "supervisor: log: %v\n", err)
		}
	}
	e = blameDisk(e, s.dir)
	end := exitFile{Exit: e, ExitedAt: time.Now().UTC(), StartedAt: s.startedAt}
	err := s.persist(func() error { return writeJSON(filepath.Join(s.dir, exitName), end, writing(s.shared)) })
	s.terminals.end(e.Code)
	if s.stage != nil {
		_ = s.launch.group().Leave(s.stage.thread)
		_ = s.launch.group().Remove() // if it is not empty, the executor removes it with the attempt
	}
	return err
}
