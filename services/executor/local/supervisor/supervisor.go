package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
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
	folder attempt.Folder
	self   attempt.Supervisor
	launch attempt.Launch
	log    *joblog.Log
	stage  *stage
	// claimed waits until the claim is on disk. Nothing is started before: after a failure of the machine the attempt
	// would be started a second time.
	claimed func() error
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
}

// retryWrite is the delay after a failed write (a full disk) before the next try.
const retryWrite = time.Second

// Supervise runs the attempt in a folder, unless another supervisor does or did, and returns once its end is on disk.
// awaitLaunch is called once the attempt is taken. If it returns false, there will be no launch: Supervise releases the
// attempt and returns.
func Supervise(folder attempt.Folder, awaitLaunch func() bool) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	if folder.Shared {
		signal.Notify(signals, launcher.RetuneSignal)
	}
	// signal.Ignore would be inherited by the job's processes.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	s := &supervisor{folder: folder, endRelay: func() {}, live: map[int]int{}, beside: map[int]*screen.Screen{}}
	self, err := identify()
	if err != nil {
		return err
	}
	s.self = self
	lock, err := takeOver(folder, self)
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	claim := pool.New().WithErrors()
	claim.Go(folder.SyncClaim)
	s.claimed = claim.Wait
	if !awaitLaunch() {
		return errors.Join(claim.Wait(), folder.Unclaim())
	}
	if s.launch, err = folder.Launch(); err != nil {
		return s.finish(train.Exit{Code: 127, Message: err.Error()})
	}
	launch := s.launch
	s.log, err = joblog.Open(launch.Output, launch.LimitBytes)
	if attempt.Passes(err) {
		return errors.Join(err, folder.Unclaim()) // it can be started once the disk has room
	}
	if err != nil {
		return s.finish(train.Exit{Code: 127, Message: err.Error()})
	}
	if folder.Shared {
		_ = os.Chmod(launch.Output, installation.SharedMode)
	}
	s.log.Begin(launch.Header)
	s.proxy = proxy.New(launch.Proxy, s.log)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return s.finish(train.Exit{Code: 127, Message: fmt.Sprintf("become the parent of orphans: %v", err)})
	}
	if err := s.begin(); err != nil {
		s.blame(attempt.Unstarted(err))
	}
	defer s.horovod.Close()
	defer func() { s.endRelay() }()
	s.wait(signals)
	if s.failed || s.forced {
		s.launch.RemoveContainers(context.Background())
	}
	return s.finish(s.first)
}

// begin starts the programs, and what they and people need to reach each other.
func (s *supervisor) begin() (err error) {
	if s.launch.Shell != nil { // its first program runs on a terminal
		if err := s.openTerminals(); err != nil {
			return err
		}
	}
	if s.endRelay, err = serveRelay(s.launch.Relay); err != nil {
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
	if s.launch.Shell == nil {
		if err := s.openTerminals(); err != nil {
			fmt.Fprintf(os.Stderr, "supervisor: %v\n", err) // the job runs without
		}
	}
	s.saveStart()
	s.tellStarted()
	s.proxy.Watch()
	s.terminals.serve()
	s.watchScreen()
	return nil
}

func (s *supervisor) openTerminals() (err error) {
	if s.terminals, err = openTerminals(s.folder); err == nil {
		s.terminals.key, s.terminals.held = s.launch.TerminalKey, s.launch.Held
	}
	return err
}

// takeOver makes this process the one supervisor of the attempt; it returns nil if another one is or was.
func takeOver(folder attempt.Folder, self attempt.Supervisor) (*os.File, error) {
	deadline := time.NewTimer(claimPatience)
	defer deadline.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		lock, err := folder.Lock()
		if err != nil {
			return nil, err
		}
		if lock != nil {
			taken, err := folder.Claim(self)
			if err != nil || !taken {
				_ = lock.Close()
				return nil, err
			}
			return lock, nil
		}
		if folder.Claimed() {
			return nil, nil
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return nil, fmt.Errorf("lock %s: held by a process that does not claim it", folder.Path)
		}
	}
}

// persist retries a write until it works or the folder is gone. A full disk passes, and an exit that is not written
// would be taken for a loss.
func (s *supervisor) persist(write func() error) error {
	again := time.NewTicker(retryWrite)
	defer again.Stop()
	for reported := false; ; reported = true {
		err := write()
		if err == nil || !installation.Exists(s.folder.Path) {
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
	s.self.StartedAt = s.startedAt
	if s.retrySave = nil; s.folder.Declare(s.self) != nil {
		s.retrySave = time.After(retryWrite)
	}
}

// tellStarted closes the socket at whose other end the executor waits. Without it, the executor looks now and then.
func (s *supervisor) tellStarted() { _ = unix.Dup3(int(s.stage.nothing.Fd()), 0, 0) }

// identify returns what identifies this process.
func identify() (attempt.Supervisor, error) {
	self, err := attempt.Kernel.Process(os.Getpid())
	return attempt.Supervisor{PID: self.PID, PIDStart: self.Start, BootID: attempt.BootID()}, err
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
	e = blameDisk(e, s.folder.Path)
	end := attempt.End{Exit: e, ExitedAt: time.Now().UTC(), StartedAt: s.startedAt}
	err := s.persist(func() error { return s.folder.End(end) })
	s.terminals.end(e.Code)
	if s.stage != nil {
		_ = s.stage.do(s.stage.leave)
		_ = s.launch.OwnGroup().Remove() // if it is not empty, the executor removes it with the attempt
	}
	return err
}

// blameDisk names the disk of an attempt's folder as the reason for the failure of its program, if it is full: the
// program may have cleaned up what it could not write, and its words may be its own.
func blameDisk(e train.Exit, dir string) train.Exit {
	if (e.Code != 0 || e.Signal != "") && !e.Forced && !e.Lost && e.Message == "" && e.Reason.Code == "" {
		e.Reason = attempt.FullDisk(dir)
	}
	return e
}
