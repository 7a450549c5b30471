package mps

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/proc"
)

// yard is a node whose control program is the stand-in.
type yard struct {
	t                *testing.T
	pipes, dir, logs string
	now              time.Time
}

func newYard(t *testing.T) *yard {
	t.Helper()
	bin, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	y := &yard{t: t, pipes: filepath.Join(t.TempDir(), "pipes"), dir: t.TempDir(), now: time.Unix(1000, 0)}
	y.logs = filepath.Join(y.dir, "mps-log")
	t.Cleanup(func() {
		if p, err := y.agent().running(); err == nil {
			_ = proc.Root("/proc").Signal(p.PID, p.Start, unix.SIGKILL)
		}
	})
	return y
}

// agent is what a start of the agent makes.
func (y *yard) agent() *Supervisor {
	return Supervise(Find(y.pipes), y.dir, "", "/proc", slog.New(slog.DiscardHandler))
}

// steps lets time pass.
func (y *yard) steps(s *Supervisor, n int) {
	for range n {
		s.step(y.t.Context(), y.now)
		y.now = y.now.Add(checkInterval)
	}
}

func (y *yard) pid(s *Supervisor) int {
	y.t.Helper()
	p, err := s.running()
	if err != nil {
		y.t.Fatal(err)
	}
	return p.PID
}

func (y *yard) end(s *Supervisor) {
	y.t.Helper()
	p, err := s.running()
	if err == nil {
		err = s.end(y.t.Context(), p)
	}
	if err != nil {
		y.t.Fatal(err)
	}
}

func (y *yard) put(name, text string) {
	y.t.Helper()
	if err := os.WriteFile(filepath.Join(y.pipes, name), []byte(text), 0o600); err != nil {
		y.t.Fatal(err)
	}
}

func TestTheDaemonIsStartedRestartedAndStopped(t *testing.T) {
	y := newYard(t)
	s := y.agent()
	y.steps(s, 1)
	if s.daemon.Dir() != y.pipes {
		t.Fatalf("folder %q, %q", s.daemon.Dir(), s.last)
	}
	first := y.pid(s)
	y.end(s)
	y.steps(s, 2)
	second := y.pid(s)
	if s.daemon.Dir() != y.pipes || second == first {
		t.Errorf("after it was killed: folder %q, process %d, before %d", s.daemon.Dir(), second, first)
	}
	y.put("sick", "")
	y.steps(s, maxMisses-1)
	if s.daemon.Dir() != y.pipes || y.pid(s) != second {
		t.Error("a question without an answer ended it")
	}
	y.steps(s, 1)
	if err := os.Remove(filepath.Join(y.pipes, "sick")); err != nil {
		t.Fatal(err)
	}
	y.steps(s, 1)
	if s.daemon.Dir() != y.pipes || y.pid(s) == second {
		t.Errorf("a silent one was not replaced: folder %q, process %d", s.daemon.Dir(), second)
	}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.running(); err == nil {
		t.Error("it runs after the agent's end")
	}
	if log, err := os.ReadFile(filepath.Join(y.logs, "control.log")); err != nil || string(log) != "started\nstarted\nstarted\n" {
		t.Errorf("log %q, error %v", log, err)
	}
}

// A killed agent leaves the daemon to the jobs; the next one takes it over. An agent that ends in order leaves it to
// jobs that still use it.
func TestTheNextAgentTakesTheDaemonOver(t *testing.T) {
	y := newYard(t)
	killed := y.agent()
	y.steps(killed, 1)
	pid := y.pid(killed)
	y.put("clients", "17\n18\n")
	next := y.agent()
	y.steps(next, 1)
	if y.pid(next) != pid {
		t.Error("it was started again")
	}
	if err := next.stop(t.Context()); err == nil || y.pid(next) != pid {
		t.Errorf("it was taken from its clients: error %v", err)
	}
	if err := os.Remove(filepath.Join(y.pipes, "clients")); err != nil {
		t.Fatal(err)
	}
	last := y.agent()
	y.steps(last, 1)
	if err := last.stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := last.running(); err == nil {
		t.Error("it runs without clients after the agent's end")
	}
}

func TestTheDaemonOfTheOperatorIsLeftAlone(t *testing.T) {
	y := newYard(t)
	operator := Find(y.pipes)
	for _, dir := range []string{y.pipes, y.logs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := operator.run(t.Context(), timeout, "", []string{logDirName + "=" + y.logs}, "-d"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := y.agent()
	y.steps(s, 1)
	pid := y.pid(s)
	y.put("sick", "")
	y.steps(s, maxMisses+2)
	if s.daemon.Dir() != "" || y.pid(s) != pid {
		t.Errorf("folder %q, process %d, before %d", s.daemon.Dir(), y.pid(s), pid)
	}
	if err := s.stop(t.Context()); err != nil || y.pid(s) != pid {
		t.Errorf("stop: error %v", err)
	}
}

// A daemon that does not stay is started less and less often.
func TestStartsBecomeRare(t *testing.T) {
	y := newYard(t)
	s := y.agent()
	if err := os.WriteFile(y.logs, nil, 0o600); err != nil { // no folder can be made there
		t.Fatal(err)
	}
	var delays []time.Duration
	for range 12 {
		s.step(t.Context(), y.now)
		delays = append(delays, s.next.Sub(y.now))
		y.now = s.next
	}
	if delays[0] != leastDelay || delays[1] != 2*leastDelay || delays[11] != mostDelay || s.last == "" {
		t.Errorf("delays %v, said %q", delays, s.last)
	}
}
