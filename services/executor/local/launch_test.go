package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// ends does what an executor does with an attempt until it is over: it starts an absent attempt, and sweeps a lost one.
func (b *bench) ends(l attempt.Launch) launch.Phase {
	b.t.Helper()
	var s launch.Status
	b.until("the end of "+string(l.Job), func() bool {
		b.reap()
		var err error
		s, err = attempt.In(b.Layout, l.Job, l.Attempt).Status()
		b.must(err)
		switch s.Phase {
		case launch.Absent:
			b.start(l)
		case launch.Lost:
			left, err := b.Sweep(b.t.Context(), train.Attempt{Job: l.Job, Number: l.Attempt})
			b.must(err)
			return left == 0
		case launch.Starting, launch.Running, launch.Ending, launch.Exited:
		}
		return s.Phase == launch.Exited
	})
	return s.Phase
}

// A supervisor that is killed at any point of a start leaves an attempt that ran at most once: the next supervisor
// starts an attempt that was not claimed, and any other is lost. Nothing of it stays alive.
func TestASupervisorIsKilledAtAnyPointOfAStart(t *testing.T) {
	b := newBench(t)
	for n, seen := range []string{
		"launch.json", "shim.log", "shim.json", "../../" + filepath.Base(b.Output("x")), "terminal", "../../work/starts",
	} {
		job := train.JobID(fmt.Sprintf("job-%d", n))
		t.Run(seen, func(t *testing.T) {
			b.must(os.MkdirAll(b.Work(job), 0o700))
			starts := filepath.Join(b.Work(job), "starts")
			l := b.launch(job, sh("echo $$ >> "+starts+"; exec sleep 1000"))
			dir := b.Attempt(job, 1)
			b.start(l)
			supervisor := 0
			b.mu.Lock()
			for pid, of := range b.children {
				if of.Path == dir {
					supervisor = pid
				}
			}
			b.mu.Unlock()
			for !installation.Exists(filepath.Join(dir, seen)) && alive(supervisor) {
			}
			b.must(unix.Kill(supervisor, unix.SIGKILL))
			b.until("the end of the supervisor", func() bool { b.reap(); return !b.hasChild(attempt.Folder{Path: dir}) })
			claimed := attempt.Folder{Path: dir}.Claimed()
			if !claimed {
				l.Processes[0].Args = sh("echo $$ >> " + starts) // for the next supervisor it would be absent
				b.must(os.Remove(filepath.Join(dir, "launch.json")))
			}
			phase := b.ends(l)
			if want := map[bool]launch.Phase{true: launch.Lost, false: launch.Exited}[claimed]; phase != want {
				t.Errorf("claimed %t: phase %d, want %d", claimed, phase, want)
			}
			data, err := os.ReadFile(starts)
			if err != nil && (!errors.Is(err, fs.ErrNotExist) || !claimed) {
				t.Error(err)
			}
			if pids := strings.Fields(string(data)); len(pids) > 1 {
				t.Errorf("it was started %d times", len(pids))
			} else if len(pids) == 1 {
				pid, err := strconv.Atoi(pids[0])
				b.must(err)
				if alive(pid) {
					t.Errorf("its program %d is alive", pid)
				}
			}
		})
	}
}

// What was written without a sync may not be whole after the machine has failed.
func TestFilesThatAreNotWhole(t *testing.T) {
	b := newBench(t)
	l := b.launch("unclaimed", sh("echo started >> starts"))
	tear := func(job train.JobID, name, text string) {
		b.must(os.MkdirAll(b.Attempt(job, 1), 0o700))
		b.must(os.WriteFile(filepath.Join(b.Attempt(job, 1), name), []byte(text), 0o600))
	}
	tear("unclaimed", "launch.json", "")
	if phase := b.ends(l); phase != launch.Exited {
		t.Errorf("phase %d, want %d", phase, launch.Exited)
	}
	if data, err := os.ReadFile(filepath.Join(b.DataDir, "starts")); err != nil || string(data) != "started\n" {
		t.Errorf("starts %q, %v", data, err)
	}
	tear("claimed", "launch.json", `{"version": 1, "job"`)
	tear("claimed", "shim.json", "\x00\x00\x00")
	tear("older", "claim", "") // by a supervisor that had yet to write its number
	for _, job := range []train.JobID{"claimed", "older"} {
		if phase := b.ends(b.launch(job, sh("true"))); phase != launch.Lost {
			t.Errorf("%s: phase %d, want %d", job, phase, launch.Lost)
		}
	}
	tear("secret", "token", "")
	if _, token, err := b.MakeSecrets(t.Context(), train.Attempt{Job: "secret", Number: 1}); err != nil || len(token) != 64 {
		t.Errorf("token %q, %v", token, err)
	}
}

// A supervisor of a version before 3 goes on after an upgrade. It has locked a file of its own.
func TestASupervisorOfAnEarlierVersion(t *testing.T) {
	b := newBench(t)
	l := b.launch("j", sh("echo started >> starts"))
	folder := attempt.In(b.Layout, "j", 1)
	b.must(os.MkdirAll(folder.Path, 0o700))
	for name, text := range map[string]string{"claim": "", "shim.json": `{"pid": 1, "pid_start": 2, "boot_id": "b", "started_at": "2026-01-02T03:04:05Z"}`} {
		b.must(os.WriteFile(filepath.Join(folder.Path, name), []byte(text), 0o600))
	}
	lock, err := os.Create(filepath.Join(folder.Path, "lock"))
	b.must(err)
	b.must(unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	if s := b.phase("j", launch.Running); s.PID != 1 || s.StartedAt.IsZero() {
		t.Errorf("%+v", s)
	}
	b.start(l)
	b.must(lock.Close())
	b.phase("j", launch.Lost)
	b.start(l)
	if installation.Exists(filepath.Join(b.DataDir, "starts")) {
		t.Error("it was started again")
	}
}

// At an upgrade, a supervisor of a version before 3 may have been started and not yet have taken its attempt. It and
// one of this version exclude each other.
func TestAStartingSupervisorOfAnEarlierVersion(t *testing.T) {
	b := newBench(t)
	begin := func(job train.JobID) (attempt.Launch, attempt.Folder) {
		l, folder := b.launch(job, sh("echo started >> starts")), attempt.In(b.Layout, job, 1)
		l.Version = 2
		b.must(os.MkdirAll(folder.Path, 0o700))
		b.must(folder.WriteLaunch(l))
		return l, folder
	}
	claim := func(folder attempt.Folder) error {
		file, err := os.OpenFile(filepath.Join(folder.Path, "claim"), os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_ = file.Close()
		}
		return err
	}
	l, folder := begin("theirs")
	lock, err := os.Create(filepath.Join(folder.Path, "lock"))
	b.must(err)
	b.must(unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	b.start(l)
	b.must(folder.Refuse(train.Exit{Code: 1}))
	b.must(claim(folder))
	b.phase("theirs", launch.Starting)
	b.must(lock.Close())
	b.phase("theirs", launch.Lost)
	if installation.Exists(filepath.Join(b.DataDir, "starts")) {
		t.Error("both started it")
	}
	l, folder = begin("ours")
	b.start(l)
	b.phase("ours", launch.Exited)
	if err := claim(folder); !os.IsExist(err) {
		t.Errorf("an earlier one could take it too: %v", err)
	}
}

// A launch of an older executor has neither version nor user. A newer executor may write what is not understood here.
func TestLaunchesOfOtherVersions(t *testing.T) {
	b := newBench(t)
	old, next := b.launch("old", sh("exit 3")), b.launch("next", sh("touch ran"))
	old.Version, next.Version = 0, attempt.Version+1
	for _, l := range []attempt.Launch{old, next} {
		dir := b.Attempt(l.Job, 1)
		b.must(os.MkdirAll(dir, 0o700))
		b.must(attempt.Folder{Path: dir}.WriteLaunch(l))
		b.start(l)
	}
	if e := b.phase("old", launch.Exited).Exit; e.Code != 3 {
		t.Errorf("the old one: %+v", e)
	}
	if e := b.phase("next", launch.Exited).Exit; e.Code != launch.CannotStart || !strings.Contains(e.Message, "install switchyard-supervisor and switchyard-server of one version") {
		t.Errorf("the newer one: %+v", e)
	}
	if installation.Exists(filepath.Join(b.DataDir, "ran")) {
		t.Error("the newer one ran")
	}
}

// The user of a launch is the user of its programs. Only root can become another one.
func TestProgramsAreTheUsers(t *testing.T) {
	b := newBench(t)
	const nobody = 65534
	mine, other := b.launch("mine", sh("id -u")), b.launch("other", sh("id -u; id -g; id -G"))
	mine.User, other.User = attempt.Self(), &attempt.User{UID: nobody, GID: nobody, Groups: []int{nobody}}
	other.Processes[0].Dir = "/"
	b.start(mine)
	b.start(other)
	b.phase("mine", launch.Exited)
	if want := fmt.Sprintf("[header]\n%d\n", os.Geteuid()); b.log("mine") != want {
		t.Errorf("%q, want %q", b.log("mine"), want)
	}
	e := b.phase("other", launch.Exited).Exit
	if os.Geteuid() != 0 {
		if !strings.Contains(e.Message, attempt.ErrOtherUser.Error()) {
			t.Errorf("exit %+v", e)
		}
		return
	}
	if want := "[header]\n65534\n65534\n65534\n"; b.log("other") != want || e.Code != 0 {
		t.Errorf("%q, %+v, want %q", b.log("other"), e, want)
	}
}

// The executor hears when the programs run, and when they cannot.
func TestStartsAreTold(t *testing.T) {
	b := newBench(t)
	told := make(chan train.JobID, 2)
	b.changed = func(jobs ...train.JobID) { told <- jobs[0] }
	b.start(b.launch("runs", sh("exec sleep 1000")))
	if job := <-told; job != "runs" {
		t.Errorf("told of %s", job)
	}
	if s, err := attempt.In(b.Layout, "runs", 1).Status(); err != nil || s.Phase != launch.Running {
		t.Errorf("phase %d, %v", s.Phase, err)
	}
	b.start(b.launch("cannot", []string{"no-such-program"}))
	if job := <-told; job != "cannot" {
		t.Errorf("told of %s", job)
	}
	b.phase("cannot", launch.Exited)
}

// The supervisor beside a program is used, even once its file was replaced, but only if it reads the same launches.
func TestTheSupervisorIsFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(self), attempt.SupervisorName)
	t.Cleanup(func() { _ = os.Remove(beside) })
	if _, err := FindSupervisor(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without one: %v", err)
	}
	copyFile(t, "/bin/true", beside)
	if _, err := FindSupervisor(t.Context()); !errors.Is(err, errOtherVersion) {
		t.Errorf("with another program in its place: %v", err)
	}
	if err := os.Remove(beside); err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, beside)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, err := FindSupervisor(ctx)
	if err != nil || found.path == "" {
		t.Fatalf("%+v, %v", found, err)
	}
	if err := os.Remove(beside); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.program = found
	b.start(b.launch("j", sh(`tr '\0' ' ' < /proc/$PPID/cmdline`)))
	b.phase("j", launch.Exited)
	if want := "[header]\n" + attempt.SupervisorName + " __shim " + b.Attempt("j", 1) + " \n"; b.log("j") != want {
		t.Errorf("%q, want %q", b.log("j"), want)
	}
}
