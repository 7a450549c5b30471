package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver/backup"
	"github.com/switchyard-dl/switchyard/libs/bustest"
)

// A file that cannot be made is no damage of the bus.
func TestABackupThatHasNoFolderSaysSo(t *testing.T) {
	var out bytes.Buffer
	path := filepath.Join(t.TempDir(), "nowhere", "x.tar")
	code := Main([]string{"switchyard", "backup", "--nats", bustest.Start(t).URL(), path}, &out, &out)
	if code != 1 || !strings.Contains(out.String(), "no such file or directory\n  fix: name a file in a folder that exists and has room") {
		t.Errorf("exit %d: %s", code, out.String())
	}
}

// A backup replaces a file, also one behind a link, and nothing else.
func TestABackupReplacesOnlyAFile(t *testing.T) {
	b := newRepairBench(t)
	dir := t.TempDir()
	fifo, folder, file, link, broken := filepath.Join(dir, "fifo"), filepath.Join(dir, "folder"), filepath.Join(dir, "b.tar"), filepath.Join(dir, "link"), filepath.Join(dir, "broken")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Mkdir(folder, 0o700), os.WriteFile(file, nil, 0o600), os.Symlink("b.tar", link), os.Symlink("nowhere/b.tar", broken)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, folder, broken} {
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		code, out := b.run("backup", path, "--nats", b.url)
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || code != 1 || !strings.Contains(out, "fix: name a file in a folder") {
			t.Errorf("%s: %v, exit %d: %s", path, err, code, out)
		}
	}
	if code, out := b.run("backup", link, "--nats", b.url); code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
	if to, err := os.Readlink(link); err != nil || to != "b.tar" {
		t.Errorf("the link is gone: %v", err)
	}
	if _, _, err := backup.Check(file); err != nil {
		t.Error(err)
	}
}

// The advice is about what is wrong.
func TestABackupThatFailsSaysWhatToDo(t *testing.T) {
	for want, err := range map[string]error{
		"name a file":              fmt.Errorf("write the backup: %w", &os.LinkError{Op: "rename", Old: "a", New: "b", Err: fs.ErrExist}),
		"when the bus is back":     fmt.Errorf("write the backup: %w", bus.ErrAway),
		"repair` says what is dam": fmt.Errorf("write the backup: JOBS %w", backup.ErrDamaged),
	} {
		if told := unwritten(err).Error(); !strings.Contains(told, want) {
			t.Errorf("want %q: %s", want, told)
		}
	}
}

// What killed processes have left is as large as the bus. The next one removes it, but not what another one writes.
func TestWhatAKilledBackupHasLeftIsRemoved(t *testing.T) {
	b := newRepairBench(t)
	dir := t.TempDir()
	left, written := filepath.Join(dir, ".switchyard-backup.1"), filepath.Join(dir, ".switchyard-backup.2")
	if err := errors.Join(os.WriteFile(left, nil, 0o600), os.WriteFile(written, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(written)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "b.tar")
	if code, out := b.run("backup", file, "--nats", b.url); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	if names := namesIn(t, dir); !slices.Equal(names, []string{".switchyard-backup.2", "b.tar"}) {
		t.Errorf("after a backup: %v", names)
	}
	if err := os.MkdirAll(filepath.Join(b.data, "bus.restoring", "jetstream"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, out := b.run("restore", file, "--data-dir", b.data); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	if names := namesIn(t, b.data); !slices.Equal(names, []string{"bus", "up.lock"}) {
		t.Errorf("after a restore: %v", names)
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
