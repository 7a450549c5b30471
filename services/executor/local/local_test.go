package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
	"github.com/switchyard-dl/switchyard/services/executor/local/supervisor"
)

// TestMain lets the test program be the supervisor of its own jobs.
func TestMain(m *testing.M) {
	supervisor.RunIfAsked(os.Args)
	if len(os.Args) == 2 && os.Args[1] == attempt.PrintVersion {
		_, _ = supervisor.Run(os.Args)
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == probeArgument {
		kind, err := Probe(context.Background(), Supervisor{}, os.Args[2])
		fmt.Printf("%s %v\n", kind, err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// bench is a back end over a fresh folder; it kills what is still alive at the end of the test.
type bench struct {
	*Backend
	t *testing.T
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Backend: New(t.TempDir(), Supervisor{}, prepare.Bounds{KillAfterMillis: 300}), t: t}
	t.Cleanup(func() {
		found, err := b.Find(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			b.until(fmt.Sprintf("nothing of %s is left", f.Job), func() bool {
				left, err := b.Sweep(context.Background(), train.Attempt{Job: f.Job, Number: f.Number})
				return err == nil && left == 0
			})
		}
	})
	return b
}

// until polls with a ticker until the condition holds.
func (b *bench) until(what string, holds func() bool) {
	b.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(3 * time.Minute)
	defer patience.Stop()
	for !holds() {
		select {
		case <-patience.C:
			b.t.Fatalf("waited too long for: %s", what)
		case <-tick.C:
		}
	}
}

func (b *bench) phase(job train.JobID, want launch.Phase) launch.Status {
	b.t.Helper()
	var s launch.Status
	b.until(fmt.Sprintf("phase %d of %s", want, job), func() bool {
		var err error
		if s, err = attempt.In(b.Layout, job, 1).Status(); err != nil {
			b.t.Fatal(err)
		}
		return s.Phase == want
	})
	b.reap()
	return s
}

func (b *bench) launch(job train.JobID, commands ...[]string) attempt.Launch {
	l := attempt.Launch{
		Version: attempt.Version, Job: job, Attempt: 1, Marker: launch.Marker(job, 1, b.DataDir), Output: b.Output(job), LimitBytes: 1 << 20,
		Header: "[header]", KillAfterMillis: 300,
	}
	for _, c := range commands {
		l.Processes = append(l.Processes, attempt.Process{Args: c, Env: []string{"PATH=" + os.Getenv("PATH"), l.Marker, "DIR=" + b.DataDir}, Dir: b.DataDir})
	}
	return l
}

func (b *bench) start(l attempt.Launch) {
	b.t.Helper()
	if err := b.Spawn(l); err != nil {
		b.t.Fatal(err)
	}
}

// begin starts an attempt with its secrets, as after its claim.
func (b *bench) begin(s launch.Setting) {
	b.t.Helper()
	if _, _, err := b.MakeSecrets(b.t.Context(), s.Attempt); err != nil {
		b.t.Fatal(err)
	}
	if err := b.Start(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) stop(job train.JobID, now time.Time) error {
	return b.Stop(b.t.Context(), train.Attempt{Job: job, Number: 1}, now)
}

func (b *bench) starting(job train.JobID) bool {
	starting, _ := b.Starting(train.Attempt{Job: job, Number: 1})
	return starting
}

func (b *bench) log(job train.JobID) string {
	b.t.Helper()
	data, err := os.ReadFile(b.Output(job))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

// slots is the setting of an attempt on two CPU slots.
func slots() launch.Setting {
	return launch.Setting{
		Job: "job-a", Spec: train.Spec{Command: []string{"true"}, Launch: train.LaunchPerNode},
		Attempt: train.Attempt{Job: "job-a", Number: 3, Node: "node-1", Devices: []train.DeviceID{"cpu:1", "cpu:0"}},
		Places: []launch.Place{{
			Node:    train.Node{ID: "node-1", JobAPI: "127.0.0.1:8099", ContainerRuntime: "docker"},
			Devices: []train.Device{{ID: "cpu:1", Kind: train.KindCPU, Core: 5}, {ID: "cpu:0", Kind: train.KindCPU, Core: 3}},
		}},
		Capability: "capability", Token: "token",
	}
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func alive(pid int) bool {
	s, err := attempt.Kernel.Process(pid)
	return err == nil && !s.Over()
}

// pidIn waits for a file with a process number in it.
func (b *bench) pidIn(name string) int {
	b.t.Helper()
	var pid int
	b.until("a number in "+name, func() bool {
		data, err := os.ReadFile(filepath.Join(b.DataDir, name))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	})
	return pid
}

func TestExitsAreRecorded(t *testing.T) {
	tests := []struct {
		name     string
		commands [][]string
		want     train.Exit
	}{
		{"success", [][]string{sh("echo out; echo err >&2")}, train.Exit{}},
		{"status", [][]string{sh("echo bad; exit 3")}, train.Exit{Code: 3, LogTail: "bad\n"}},
		{"signal", [][]string{sh("kill -SEGV $$")}, train.Exit{Signal: "SIGSEGV"}},
		{"no-such-program", [][]string{{"switchyard-no-such"}}, train.Exit{Code: 127, Message: "command not found: switchyard-no-such"}},
		{"no-such-path", [][]string{{"/nowhere/x"}}, train.Exit{Code: 127, Message: "command not found: /nowhere/x"}},
		{"folder", [][]string{{"/usr"}}, train.Exit{Code: 127, Message: "cannot run /usr: is a folder"}},
		{"not-executable", [][]string{{"/etc/passwd"}}, train.Exit{Code: 127, Message: "cannot run /etc/passwd: no permission to execute it (chmod +x gives it)"}},
		{"no-command", [][]string{{""}}, train.Exit{Code: 127, Message: "no command"}},
		{"one-rank-fails", [][]string{sh("echo long; exec sleep 1000"), sh("exit 7")}, train.Exit{Code: 7}},
		{"stubborn-rank", [][]string{sh("trap '' TERM; while :; do sleep 0.1; done"), sh("exit 7")}, train.Exit{Code: 7}},
	}
	b := newBench(t)
	for _, test := range tests {
		b.start(b.launch(train.JobID(test.name), test.commands...))
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := b.phase(train.JobID(test.name), launch.Exited)
			got := s.Exit
			if test.want.LogTail == "" {
				got.LogTail = ""
			}
			if got != test.want {
				t.Errorf("exit %+v, want %+v", got, test.want)
			}
			if s.StartedAt.IsZero() == (test.want.Message == "") {
				t.Errorf("started at %v although the exit is %+v", s.StartedAt, got)
			}
			b.until("the end of the supervisor", func() bool { b.reap(); return !alive(s.PID) })
		})
	}
	if got, want := b.log("success"), "[header]\nout\nerr\n"; got != want {
		t.Errorf("log %q, want %q", got, want)
	}
}

func TestNothingSurvivesTheProgram(t *testing.T) {
	b := newBench(t)
	// A daemon in its own session with an empty environment and without its parent, and an ordinary background
	// process.
	b.start(b.launch("j", sh(`(setsid env -i sh -c 'echo $$ > daemon.tmp; mv daemon.tmp daemon; exec sleep 1000' &) ; sleep 1000 & echo $! > child; while ! [ -e daemon ]; do sleep 0.01; done`)))
	s := b.phase("j", launch.Exited)
	if s.Exit != (train.Exit{}) {
		t.Errorf("exit %+v, want a good one", s.Exit)
	}
	for _, name := range []string{"daemon", "child"} {
		if pid := b.pidIn(name); alive(pid) {
			t.Errorf("%s %d is alive", name, pid)
		}
	}
}

func TestStopAsksThenKills(t *testing.T) {
	b := newBench(t)
	b.start(b.launch("polite", sh(`trap 'echo bye; exit 0' TERM; touch ready; while :; do sleep 0.02; done`)))
	b.start(b.launch("stubborn", sh(`trap '' TERM; echo $$ > stubborn; while :; do sleep 0.02; done`)))
	b.until("ready", func() bool { return installation.Exists(filepath.Join(b.DataDir, "ready")) })
	pid := b.pidIn("stubborn")
	for _, job := range []train.JobID{"polite", "stubborn"} {
		b.phase(job, launch.Running)
		for range 2 {
			if err := b.stop(job, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := b.phase("polite", launch.Exited).Exit; got.Code != 0 || got.Signal != "" || !got.Forced {
		t.Errorf("polite: %+v, want a forced exit with status 0", got)
	}
	if got := b.phase("stubborn", launch.Exited).Exit; got.Signal != "SIGKILL" || !got.Forced {
		t.Errorf("stubborn: %+v, want killed by force", got)
	}
	if !strings.Contains(b.log("polite"), "bye\n") {
		t.Errorf("log %q lacks the last words", b.log("polite"))
	}
	if alive(pid) {
		t.Error("the stubborn program is alive")
	}
}

func TestStopBeforeTheStartPreventsIt(t *testing.T) {
	b := newBench(t)
	if err := b.stop("j", time.Now()); err != nil {
		t.Fatal(err)
	}
	b.start(b.launch("j", sh("touch ran")))
	if s := b.phase("j", launch.Exited); !s.Exit.Forced {
		t.Errorf("exit %+v, want a forced one", s.Exit)
	}
	if installation.Exists(filepath.Join(b.DataDir, "ran")) {
		t.Error("the program ran")
	}
}

// A supervisor that is stopped by a signal does not react; it is killed itself in the end.
func TestSupervisorThatHangsIsKilled(t *testing.T) {
	b := newBench(t)
	b.start(b.launch("j", sh("echo $$ > pid; exec sleep 1000")))
	s := b.phase("j", launch.Running)
	pid := b.pidIn("pid")
	if err := unix.Kill(s.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, at := range []time.Time{now, now.Add(time.Second), now.Add(time.Minute)} {
		if err := b.stop("j", at); err != nil {
			t.Fatal(err)
		}
	}
	b.phase("j", launch.Lost)
	b.until("the end of the program", func() bool { return !alive(pid) })
}

func TestManySupervisorsOneStart(t *testing.T) {
	b := newBench(t)
	l := b.launch("j", sh("echo started >> starts; sleep 0.2"))
	dir := b.Attempt("j", 1)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (attempt.Folder{Path: dir}).WriteLaunch(l); err != nil {
		t.Fatal(err)
	}
	var supervisors []*exec.Cmd
	for range 8 {
		cmd := exec.Command("/proc/self/exe", attempt.Supervise, dir)
		cmd.Stdin, cmd.Stderr = strings.NewReader("\x01"), os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		supervisors = append(supervisors, cmd)
	}
	for _, cmd := range supervisors {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	b.start(l) // and an executor that comes late
	data, err := os.ReadFile(filepath.Join(b.DataDir, "starts"))
	if err != nil || string(data) != "started\n" {
		t.Errorf("starts %q, error %v: want one", data, err)
	}
	if got := b.phase("j", launch.Exited).Exit; got != (train.Exit{}) {
		t.Errorf("exit %+v, want a good one", got)
	}
}

// An executor that dies before it has written the launch closes the line, too.
func TestSupervisorWithoutALaunchGivesTheAttemptUp(t *testing.T) {
	b := newBench(t)
	l := b.launch("j", sh("echo started >> starts"))
	folder := attempt.In(b.Layout, "j", 1)
	supervisor, err := b.prestart(folder, l.Sandbox, l.Runtime)
	if err != nil {
		t.Fatal(err)
	}
	b.phase("j", launch.Starting)
	supervisor.abandon()
	b.phase("j", launch.Absent)
	b.start(l)
	b.phase("j", launch.Exited)
	data, err := os.ReadFile(filepath.Join(b.DataDir, "starts"))
	if err != nil || string(data) != "started\n" {
		t.Errorf("starts %q, error %v: want one", data, err)
	}
}

func TestKilledSupervisorIsALoss(t *testing.T) {
	b := newBench(t)
	l := b.launch("j", sh(`echo $$ > program
		sh -c 'echo $$ > child; while :; do sleep 1000; done' &
		(setsid sh -c 'echo $$ > daemon; while :; do sleep 1000; done' &)
		wait`), sh(`exec sleep 1000`))
	b.start(l)
	s := b.phase("j", launch.Running)
	pids := map[string]int{"program": b.pidIn("program"), "child": b.pidIn("child"), "daemon": b.pidIn("daemon")}
	if err := unix.Kill(s.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.phase("j", launch.Lost)
	a := train.Attempt{Job: "j", Number: 1, TokenHash: b.DataDir}
	b.until("nothing left", func() bool {
		left, err := b.Sweep(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
	for name, pid := range pids {
		if alive(pid) {
			t.Errorf("%s %d is alive", name, pid)
		}
	}
	// A late supervisor starts nothing.
	b.start(l)
	b.phase("j", launch.Lost)
}

func TestWaitExit(t *testing.T) {
	b := newBench(t)
	b.start(b.launch("short", sh("while ! [ -e go ]; do sleep 0.01; done")))
	s := b.phase("short", launch.Running)
	var waiter conc.WaitGroup
	waiter.Go(func() {
		WaitExit(b.t.Context(), s)
		if alive(s.PID) {
			t.Error("returned while the supervisor lives")
		}
	})
	if err := os.WriteFile(filepath.Join(b.DataDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waiter.Wait()
	if s := b.phase("short", launch.Exited); s.Exit != (train.Exit{}) {
		t.Errorf("exit %+v", s.Exit)
	}
	b.start(b.launch("long", sh("exec sleep 1000")))
	s = b.phase("long", launch.Running)
	ctx, cancel := context.WithCancel(b.t.Context())
	cancel()
	WaitExit(ctx, s) // returns although it lives
	if !alive(s.PID) {
		t.Error("the supervisor is gone")
	}
}

func TestSecretsStay(t *testing.T) {
	b := newBench(t)
	capability, token, err := b.MakeSecrets(t.Context(), train.Attempt{Job: "j", Number: 1})
	if err != nil || len(capability) != 64 || len(token) != 64 || capability == token {
		t.Fatalf("%q, %q, %v", capability, token, err)
	}
	again, second, err := b.MakeSecrets(t.Context(), train.Attempt{Job: "j", Number: 2})
	if err != nil || again != capability || second == token {
		t.Errorf("attempt 2 got %q and %q, %v", again, second, err)
	}
	info, err := os.Stat(filepath.Join(b.Job("j"), "capability"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("capability: %v, %v: want mode 0600", info.Mode(), err)
	}
}

func TestPythonByEitherName(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(filepath.Join(b.DataDir, "python3"), []byte("#!/bin/sh\necho python3 runs $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := b.launch("j", []string{"python", "x.py"})
	l.Processes[0].Fallback, l.Processes[0].Env = "python3", []string{"PATH=" + b.DataDir}
	b.start(l)
	if got := b.phase("j", launch.Exited).Exit; got != (train.Exit{}) || !strings.Contains(b.log("j"), "python3 runs x.py\n") {
		t.Errorf("exit %+v, log %q", got, b.log("j"))
	}
	l = b.launch("none", []string{"python", "x.py"})
	l.Processes[0].Fallback, l.Processes[0].Env = "python3", []string{"PATH=/nowhere"}
	b.start(l)
	if got := b.phase("none", launch.Exited).Exit; got.Message != "command not found: python; command not found: python3" {
		t.Errorf("exit %+v", got)
	}
}

// TestServersEndWithTheWorkers: processes that only serve others are ended once the workers have succeeded, and how
// they end is no failure. A server that fails before is one.
func TestServersEndWithTheWorkers(t *testing.T) {
	b := newBench(t)
	serves := func(l attempt.Launch, ranks ...int) attempt.Launch {
		for _, rank := range ranks {
			l.Processes[rank].Serves = true
		}
		return l
	}
	b.start(serves(b.launch("served", []string{"sh", "-c", "trap 'echo asked; exit 143' TERM; while :; do sleep 0.05; done"},
		[]string{"sleep", "1000"}, []string{"sh", "-c", "echo trained"}), 0, 1))
	if s := b.phase("served", launch.Exited); s.Exit != (train.Exit{}) {
		t.Errorf("exit %+v, want success", s.Exit)
	}
	b.start(serves(b.launch("broken", []string{"sh", "-c", "exit 7"}, []string{"sleep", "1000"}), 0))
	if s := b.phase("broken", launch.Exited); s.Exit.Code != 7 || s.Exit.Forced {
		t.Errorf("exit %+v, want the server's code 7", s.Exit)
	}
	b.start(serves(b.launch("stopped", []string{"sleep", "1000"}, []string{"sleep", "1000"}), 0))
	b.phase("stopped", launch.Running)
	if err := b.stop("stopped", time.Now()); err != nil {
		t.Fatal(err)
	}
	if s := b.phase("stopped", launch.Exited); !s.Exit.Forced {
		t.Errorf("exit %+v, want a forced one", s.Exit)
	}
}
