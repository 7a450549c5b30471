package supervisor

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/screen"
)

// overdueLook is the time between two looks at whether a screen is overdue.
const overdueLook = 200 * time.Millisecond

// terminals serves the terminals of an attempt on a socket in its folder, to the executor: that of an interactive job,
// or a new one for each caller, beside the job's processes.
type terminals struct {
	listener attempt.Terminals
	// own is the screen of an interactive job. asked has what the supervisor is asked for.
	own   *screen.Screen
	asked chan request
	// key is the hash of the secret that a caller must show if the processes belong to another user than the executor,
	// which then does not decide it.
	key     string
	held    bool
	serving conc.WaitGroup
	closed  chan struct{}
}

// request asks the supervisor for a terminal beside the job's processes, or, for a reason, to end the job.
type request struct {
	request rpc.TerminalRequest
	opened  chan<- *screen.Screen
	over    train.Reason
}

func openTerminals(folder attempt.Folder) (*terminals, error) {
	listener, err := folder.ListenTerminals()
	if err != nil {
		return nil, err
	}
	return &terminals{listener: listener, asked: make(chan request), closed: make(chan struct{})}, nil
}

// serve serves callers until close.
func (t *terminals) serve() {
	if t == nil {
		return
	}
	t.serving.Go(func() {
		for {
			c, err := t.listener.AcceptUnix()
			if err != nil {
				return
			}
			t.serving.Go(func() { t.answer(c) })
		}
	})
}

func (t *terminals) answer(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	packet := make([]byte, rpc.TerminalPacketSize)
	n, err := c.Read(packet)
	var r rpc.TerminalRequest
	if err != nil || json.Unmarshal(packet[:n], &r) != nil || t.held && !(&train.ShellSpec{Key: t.key}).Needs(r.Secret) {
		return
	}
	if t.own != nil {
		t.own.View(c, r.Size)
		return
	}
	opened := make(chan *screen.Screen, 1)
	select {
	case t.asked <- request{request: r, opened: opened}:
	case <-t.closed:
		return
	}
	if s := <-opened; s != nil {
		s.Resize(r.Size)
		t.serving.Go(s.Copy)
		s.View(c, r.Size)
		s.Close()
	}
}

// asks returns the channel of what the supervisor is asked for.
func (t *terminals) asks() <-chan request {
	if t == nil {
		return nil
	}
	return t.asked
}

// answer does what was asked for.
func (s *supervisor) answer(a request) {
	if a.over.Code != "" {
		s.blame(train.Exit{Code: hungUp, Reason: a.over})
		return
	}
	s.openBeside(a)
}

// end lets the viewers of an interactive job go.
func (t *terminals) end(status int) {
	if t == nil {
		return
	}
	if close(t.closed); t.own != nil {
		t.own.End(status)
	}
	_ = t.listener.Close()
	t.serving.Wait()
}

// watchScreen ends an interactive job that nobody looks at, or types into.
func (s *supervisor) watchScreen() {
	if s.terminals == nil || s.terminals.own == nil {
		return
	}
	s.terminals.serving.Go(func() {
		again := time.NewTicker(overdueLook)
		defer again.Stop()
		for {
			select {
			case <-s.terminals.closed:
				return
			case now := <-again.C:
				why, over := s.terminals.own.Overdue(*s.launch.Shell, now)
				if !over {
					continue
				}
				select {
				case s.terminals.asked <- request{over: why}:
				case <-s.terminals.closed:
				}
				return
			}
		}
	})
}

// openBeside starts a program on a terminal beside the job's processes: in the folder, the environment and on the
// processors of the first one. It ends with the job at the latest, and decides nothing about it.
func (s *supervisor) openBeside(a request) {
	var opened *screen.Screen
	defer func() { a.opened <- opened }()
	master, slave, err := screen.OpenTerminal()
	if err != nil {
		fmt.Fprintf(os.Stderr, "supervisor: %v\n", err)
		return
	}
	defer func() { _ = slave.Close() }()
	opened = screen.New(master, time.Now())
	pid, err := s.stage.start(beside(s.launch, a.request.Term, a.request.Command), [3]*os.File{slave, slave, slave}, onTerminal())
	if err != nil {
		_, _ = fmt.Fprintf(opened, "%v\r\n", err)
		opened.End(launch.CannotStart)
		return
	}
	s.beside[pid] = opened
}

// onTerminal gives a program a terminal of its own.
func onTerminal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true, Setctty: true} }

// endBeside lets the viewer of a program that has ended see its last words, and its status.
func (s *supervisor) endBeside(e ended) {
	shown, is := s.beside[e.pid]
	if !is {
		return
	}
	delete(s.beside, e.pid)
	const signalled = 128
	status := e.status.ExitStatus()
	if e.status.Signaled() {
		status = signalled + int(e.status.Signal())
	}
	// What the program has written is read by now, unless a process that it left behind holds the terminal.
	s.terminals.serving.Go(func() {
		shown.Drain()
		shown.End(status)
	})
}
