package trash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// nest makes folders within each other, deeper than a path may be long.
func nest(t *testing.T, top string, depth int) {
	t.Helper()
	at, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	for n := 0; n < depth && err == nil; n++ {
		err = unix.Mkdirat(at, "d", 0o700)
		inner, failed := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		err = errors.Join(err, failed, unix.Close(at))
		at = inner
	}
	if err := errors.Join(err, unix.Close(at)); err != nil {
		t.Fatal(err)
	}
}

// A folder is gone at once whatever it holds, and in time all that it held; what its links lead to stays.
func TestWhateverAJobLeavesGoes(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 200
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept", "file")
	if err := errors.Join(os.Mkdir(filepath.Dir(kept), 0o700), os.WriteFile(kept, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for what, fill := range map[string]func(folder string) error{
		"nothing": func(string) error { return nil },
		"more files than a round removes": func(folder string) error {
			for n := range perRound + 10 {
				if err := os.WriteFile(filepath.Join(folder, fmt.Sprint(n)), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
		"deep folders": func(folder string) error { nest(t, folder, 2500); return nil },
		"folders that nobody may open": func(folder string) error {
			inner := filepath.Join(folder, "a", "b")
			return errors.Join(os.MkdirAll(inner, 0o700), os.WriteFile(filepath.Join(inner, "c"), nil, 0o600), os.Chmod(inner, 0), os.Chmod(filepath.Dir(inner), 0o500))
		},
		"links": func(folder string) error {
			return errors.Join(os.Symlink(filepath.Dir(kept), filepath.Join(folder, "link")), os.MkdirAll(filepath.Join(folder, "x", "y"), 0o700), os.Symlink(kept, filepath.Join(folder, "x", "y", "link")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			folder := filepath.Join(dir, "attempt")
			if err := errors.Join(os.Mkdir(folder, 0o700), fill(folder)); err != nil {
				t.Fatal(err)
			}
			bin := In(dir)
			if err := bin.Throw(folder); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(folder); err == nil {
				t.Error("the folder has its name")
			}
			for again := true; again; {
				var err error
				if again, err = bin.round(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if left, err := os.ReadDir(filepath.Join(dir, "removed")); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
			if _, err := os.Lstat(kept); err != nil {
				t.Errorf("what a link led to is gone: %v", err)
			}
		})
	}
	if err := In(dir).Throw(filepath.Join(dir, "never")); err != nil {
		t.Error(err)
	}
}

// The trash is emptied when something is thrown, and of what an earlier process has left.
func TestTheTrashIsEmptied(t *testing.T) {
	dir := t.TempDir()
	throw := func(name string, bin *Trash) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Join(path, "x"), 0o700), bin.Throw(path)); err != nil {
			t.Fatal(err)
		}
	}
	throw("earlier", In(dir))
	bin := In(dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var emptying conc.WaitGroup
	emptying.Go(func() { bin.Empty(ctx, slog.New(slog.DiscardHandler)) })
	defer emptying.Wait()
	defer cancel()
	empty := func() bool {
		left, err := os.ReadDir(filepath.Join(dir, "removed"))
		return err == nil && len(left) == 0
	}
	for _, name := range []string{"", "a", "b"} {
		if name != "" {
			throw(name, bin)
		}
		for !empty() {
			if !tick.Pause(ctx, time.Millisecond) {
				t.Fatal("it is not emptied")
			}
		}
	}
}
