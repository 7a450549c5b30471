package local

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// stderr returns what the supervisor of an attempt printed.
func (b *bench) stderr(job train.JobID) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.Attempt(job, 1), "shim.log"))
	b.must(err)
	return string(data)
}

// block makes a file of an attempt impossible to write, as a full disk does, by putting a folder in its place.
func (b *bench) block(job train.JobID, name string) (unblock func()) {
	b.t.Helper()
	path := filepath.Join(b.Attempt(job, 1), name)
	b.must(os.MkdirAll(path, 0o700))
	return func() { b.must(os.Remove(path)) }
}

// A job ends while its end cannot be written: it is not lost, and the end is recorded once it can be.
func TestExitIsRecordedWhenThereIsRoomAgain(t *testing.T) {
	b := newBench(t)
	unblock := b.block("j", "exit.json")
	b.start(b.launch("j", sh("echo $$ > pid")))
	pid := b.pidIn("pid")
	b.until("the failed write", func() bool { return strings.Contains(b.stderr("j"), "exit.json") })
	if alive(pid) {
		t.Error("the program is alive")
	}
	if lock, err := attempt.In(b.Layout, "j", 1).Lock(); err != nil || lock != nil {
		t.Fatalf("the supervisor has left its attempt: lock %v, error %v", lock, err)
	}
	unblock()
	if s := b.phase("j", launch.Exited); s.Exit != (train.Exit{}) {
		t.Errorf("exit %+v, want a good one", s.Exit)
	}
}

// Nothing is started before the supervisor's process number is on disk, and the attempt can be started later.
func TestNothingStartsBeforeItIsDeclared(t *testing.T) {
	b := newBench(t)
	unblock := b.block("j", "shim.json")
	l := b.launch("j", sh("echo started >> starts"))
	b.start(l)
	b.until("the supervisor's end", func() bool { return !b.starting("j") })
	if installation.Exists(filepath.Join(b.DataDir, "starts")) {
		t.Error("the program ran, and nobody could have ended it")
	}
	unblock()
	if s, err := attempt.In(b.Layout, "j", 1).Status(); err != nil || s.Phase != launch.Absent {
		t.Fatalf("phase %d, error %v: want it absent", s.Phase, err)
	}
	b.start(l)
	if s := b.phase("j", launch.Exited); s.Exit != (train.Exit{}) {
		t.Errorf("exit %+v, want a good one", s.Exit)
	}
	if data, err := os.ReadFile(filepath.Join(b.DataDir, "starts")); err != nil || string(data) != "started\n" {
		t.Errorf("starts %q, error %v: want one", data, err)
	}
}

// Only the exit file shows that the programs ran.
func TestExitTellsTheStart(t *testing.T) {
	b := newBench(t)
	b.start(b.launch("j", sh("true")))
	b.phase("j", launch.Exited)
	b.must(os.Remove(filepath.Join(b.Attempt("j", 1), "shim.json")))
	if s := b.phase("j", launch.Exited); s.StartedAt.IsZero() {
		t.Error("the start is not known")
	}
}

// An executor looks at an attempt more often than a supervisor needs to take it over on a busy machine.
func TestOneSupervisorAtATime(t *testing.T) {
	b := newBench(t)
	l := b.launch("j", sh("exec sleep 1000"))
	dir := b.Attempt("j", 1)
	b.must(os.MkdirAll(dir, 0o700))
	lock, err := attempt.Folder{Path: dir}.Lock() // keeps supervisors from claiming
	b.must(err)
	for range 5 {
		b.start(l)
		b.reap()
	}
	pids, err := attempt.Descendants(os.Getpid())
	b.must(err)
	supervisors := 0
	for _, pid := range pids {
		if line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")); err == nil && strings.Contains(string(line), dir) {
			supervisors++
		}
	}
	if supervisors != 1 {
		t.Errorf("%d supervisors wait, want 1", supervisors)
	}
	b.must(lock.Close())
	b.phase("j", launch.Running)
}

// While an attempt is forgotten, its folder never has its name without the claim.
func TestForgottenAttemptLosesItsNameFirst(t *testing.T) {
	b := newBench(t)
	b.start(b.launch("j", sh("true")))
	s := b.phase("j", launch.Exited)
	b.until("the end of the supervisor", func() bool { b.reap(); return !alive(s.PID) })
	folder, err := os.Open(b.Attempt("j", 1))
	b.must(err)
	defer folder.Close()
	b.must(b.Forget(t.Context(), train.Attempt{Job: "j", Number: 1}))
	last, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(int(folder.Fd()))))
	b.must(err)
	if want := filepath.Join(b.DataDir, "removed"); filepath.Dir(last) != want {
		t.Errorf("the folder ended as %s, want it in %s", last, want)
	}
	b.must(b.Forget(t.Context(), train.Attempt{Job: "j", Number: 1})) // a repetition does no harm
}

func TestTidyRemovesWhatAKilledExecutorLeft(t *testing.T) {
	b := newBench(t)
	jobs := filepath.Join(b.DataDir, "jobs")
	for _, dir := range []string{".probe-1/x", "j/attempts/.forgotten-1/x", "j/attempts/2", "j/snapshots", "probe-2/attempts/1"} {
		b.must(os.MkdirAll(filepath.Join(jobs, dir), 0o700))
	}
	b.must(Tidy(b.DataDir))
	for dir, want := range map[string]bool{
		".probe-1": false, "j/attempts/.forgotten-1": false, "j/attempts/2": true, "j/snapshots": true, "probe-2/attempts/1": true,
	} {
		if installation.Exists(filepath.Join(jobs, dir)) != want {
			t.Errorf("%s is there: %t, want %t", dir, !want, want)
		}
	}
	b.must(b.ForgetAll(t.Context(), "j"))
	b.must(b.ForgetAll(t.Context(), "never-tried"))
	if installation.Exists(filepath.Join(jobs, "j/attempts")) || !installation.Exists(filepath.Join(jobs, "j/snapshots")) {
		t.Error("want the attempts gone and the snapshots there")
	}
}
