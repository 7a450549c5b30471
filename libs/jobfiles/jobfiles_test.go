package jobfiles

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/rpc"
)

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A job's files are found under readable names, also those of an older version, and come in pieces; nothing else does.
func TestFilesOfAJob(t *testing.T) {
	dir := t.TempDir()
	l := installation.Layout{DataDir: filepath.Join(dir, "data")}
	model := bytes.Repeat([]byte("m"), maxChunk+3)
	hidden := filepath.Join(dir, "out", "5ec7e7")
	write(t, filepath.Join(hidden, "model.pt"), model)
	write(t, filepath.Join(l.Work("j-1"), "notes.txt"), []byte("n"))
	write(t, filepath.Join(dir, "secret"), []byte("s"))
	if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(hidden, "out")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // each attempt makes the links again
		if err := Link(l, "j-1", hidden, ""); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Answer(l, "n1", rpc.FileRequest{Job: "j-1"})
	if err != nil || len(got.Files) != 2 || got.Folders.Checkpoints != filepath.Join(dir, "out", "j-1") || got.Folders.Machine != "n1" {
		t.Fatalf("%+v, %v", got, err)
	}
	first, err := Answer(l, "n1", rpc.FileRequest{Job: "j-1", Path: "checkpoints/model.pt"})
	if err != nil || first.Size != int64(len(model)) || len(first.Data) != maxChunk {
		t.Fatalf("%d of %d bytes, %v", len(first.Data), first.Size, err)
	}
	rest, err := Answer(l, "n1", rpc.FileRequest{Job: "j-1", Path: "checkpoints/model.pt", Offset: maxChunk})
	if err != nil || string(rest.Data) != "mmm" {
		t.Fatalf("%q, %v", rest.Data, err)
	}
	for _, path := range []string{"checkpoints/../../secret", "checkpoints/out", "work/../capability", "/etc/passwd", "checkpoints", "work/none"} {
		if got, err := Answer(l, "n1", rpc.FileRequest{Job: "j-1", Path: path}); err == nil {
			t.Errorf("%s: %q", path, got.Data)
		}
	}
	write(t, filepath.Join(l.Snapshots("old-1"), "0537e6", "model"), []byte("x"))
	if old, err := Answer(l, "n1", rpc.FileRequest{Job: "old-1", Path: "checkpoints/model"}); err != nil || string(old.Data) != "x" {
		t.Errorf("%q, %v", old.Data, err)
	}
	if _, err := Answer(l, "n1", rpc.FileRequest{Job: "gone"}); err == nil || !strings.Contains(err.Error(), "switchyard purge") {
		t.Error(err)
	}
	if _, err := Answer(l, "n1", rpc.FileRequest{Job: "../x"}); err == nil {
		t.Error("a path is no job")
	}
}

// A job that runs in its user's home gives out what it wrote, and nothing of what else changes there.
func TestAHomeIsNotGivenOut(t *testing.T) {
	home := t.TempDir()
	l := installation.Layout{DataDir: filepath.Join(home, "yard")}
	write(t, filepath.Join(l.Job("j-1"), "capability"), nil)
	write(t, filepath.Join(home, "before.txt"), nil)
	if err := os.Chtimes(filepath.Join(home, "before.txt"), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := Link(l, "j-1", filepath.Join(home, "saved", "5ec7e7"), home); err != nil {
		t.Fatal(err)
	}
	minuteAgo := unix.NsecToTimespec(time.Now().Add(-time.Minute).UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(l.Job("j-1"), startedInName), []unix.Timespec{minuteAgo, minuteAgo}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.pt", ".ssh/id", "runs/.cache/x", "yard/jobs/j-2/capability"} {
		write(t, filepath.Join(home, name), []byte("s"))
	}
	if err := os.Symlink(filepath.Join(home, ".ssh", "id"), filepath.Join(home, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := Answer(l, "n1", rpc.FileRequest{Job: "j-1"})
	if err != nil || len(got.Files) != 1 || got.Files[0].Path != "work/model.pt" {
		t.Errorf("%+v, %v", got.Files, err)
	}
	for _, path := range []string{"work/.ssh/id", "work/link", "work/runs/../.ssh/id", "work/yard/jobs/j-2/capability"} {
		if got, err := Answer(l, "n1", rpc.FileRequest{Job: "j-1", Path: path}); err == nil {
			t.Errorf("%s: %q", path, got.Data)
		}
	}
	if got, err := Answer(l, "n1", rpc.FileRequest{Job: "j-1", Path: "work/model.pt"}); err != nil || string(got.Data) != "s" {
		t.Errorf("%q, %v", got.Data, err)
	}
}

// A person can put something else in the place of a folder of his job: the service reads none of it for him.
func TestAFolderThatWasReplacedIsNotRead(t *testing.T) {
	replace := func(folder, to string) {
		t.Helper()
		if err := errors.Join(os.Rename(folder, folder+".moved"), os.Symlink(to, folder)); err != nil {
			t.Fatal(err)
		}
	}
	for what, change := range map[string]func(l installation.Layout, saved, work string){
		"checkpoints, by the keys":              func(l installation.Layout, saved, _ string) { replace(saved, filepath.Join(l.DataDir, "keys")) },
		"checkpoints, by another job":           func(l installation.Layout, saved, _ string) { replace(saved, l.Job("ann-k")) },
		"checkpoints, by another folder of his": func(_ installation.Layout, saved, work string) { replace(saved, work) },
		"a folder above, by another job":        func(l installation.Layout, saved, _ string) { replace(filepath.Dir(saved), l.Job("ann-k")) },
		"the working folder, by the keys":       func(l installation.Layout, _, work string) { replace(work, filepath.Join(l.DataDir, "keys")) },
		"the working folder, by the machine's":  func(_ installation.Layout, _, work string) { replace(work, "/etc") },
	} {
		dir := t.TempDir()
		l := installation.Layout{DataDir: filepath.Join(dir, "data")}
		saved, work := filepath.Join(l.Snapshots("bob-4"), "5ec7e7"), filepath.Join(dir, "bob")
		write(t, filepath.Join(saved, "model.pt"), []byte("m"))
		for _, secret := range []string{"keys/operator.nk", "jobs/ann-k/capability", "jobs/ann-k/5ec7e7/token"} {
			write(t, filepath.Join(l.DataDir, secret), []byte("secret"))
		}
		if err := errors.Join(os.Mkdir(work, 0o700), Link(l, "bob-4", saved, work)); err != nil {
			t.Fatal(err)
		}
		notes, later := filepath.Join(work, "notes.txt"), time.Now().Add(time.Second) // a clock of the kernel ticks slowly
		if write(t, notes, []byte("n")); os.Chtimes(notes, later, later) != nil {
			t.Fatal("no time")
		}
		if got, err := Answer(l, "n1", rpc.FileRequest{Job: "bob-4"}); err != nil || len(got.Files) != 2 {
			t.Fatalf("%s: before: %+v, %v", what, got, err)
		}
		change(l, saved, work)
		got, err := Answer(l, "n1", rpc.FileRequest{Job: "bob-4"})
		if err != nil || len(got.Files) != 1 {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		for _, path := range []string{"checkpoints/operator.nk", "checkpoints/capability", "checkpoints/token", "work/operator.nk", "work/hostname", "checkpoints/notes.txt"} {
			if got, err := Answer(l, "n1", rpc.FileRequest{Job: "bob-4", Path: path}); err == nil {
				t.Errorf("%s: %s: %q", what, path, got.Data)
			}
		}
		if strings.Contains(what, "checkpoints") || strings.Contains(what, "above") {
			if at := Checkpoints(l, "bob-4"); at != "" {
				t.Errorf("%s: a job that continues it copies %s", what, at)
			}
		}
	}
}

// A pipe is no file, and nobody waits for a writer.
func TestAPipeIsNotWaitedFor(t *testing.T) {
	l := installation.Layout{DataDir: t.TempDir()}
	if err := errors.Join(os.MkdirAll(l.Work("j-1"), 0o700), unix.Mkfifo(filepath.Join(l.Work("j-1"), "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := Answer(l, "n1", rpc.FileRequest{Job: "j-1", Path: "work/pipe"}); err == nil {
		t.Errorf("%q", got.Data)
	}
}
