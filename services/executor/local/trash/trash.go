// Package trash removes folders that the programs of jobs have filled. They may hold millions of files, or be nested
// deeper than a process has descriptors, and programs that outlived their job may still write there. So nobody waits:
// a folder loses its name at once, and its content goes in the background.
package trash

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Trash is a folder of its user alone, in the file system of what is thrown into it.
type Trash struct {
	path string
	more tick.Signal
}

// In returns the trash of a data folder.
func In(dataDir string) *Trash {
	return &Trash{path: filepath.Join(dataDir, "removed"), more: tick.NewSignal()}
}

// Throw takes a folder's name away in one step. A folder that is not there is gone already. All folders above it must
// belong to the user of this process.
func (t *Trash) Throw(path string) error {
	if err := installation.MakeFolder(t.path); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(t.path, rand.Text())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	t.more.Send()
	return nil
}

// The delay before the next try, if nothing could be removed.
const (
	shortest = time.Second
	longest  = 10 * time.Minute
)

// Empty removes what is thrown until ctx ends, with what an earlier process has left.
func (t *Trash) Empty(ctx context.Context, log *slog.Logger) {
	wait := shortest
	for ctx.Err() == nil {
		progress, err := t.round(ctx)
		if progress {
			wait = shortest
			continue
		}
		if err == nil {
			wait = longest
		} else {
			log.Warn("folders of ended attempts are not removed yet", "in", t.path, "error", err, "again_in", wait)
		}
		again := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.more:
		case <-again.C:
			wait = min(2*wait, longest)
		}
		again.Stop()
	}
}

// perRound bounds what is removed of one folder before the next one has its turn.
const perRound = 2_000

// round removes a part of each folder. Folders in it that are not empty become folders of the trash themselves, so that
// no depth needs more than four descriptors.
func (t *Trash) round(ctx context.Context) (progress bool, err error) {
	bin, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = bin.Close() }()
	names, err := bin.Readdirnames(-1)
	for _, name := range names {
		if ctx.Err() != nil {
			return progress, nil
		}
		some, failed := reduce(bin, name)
		progress = progress || some
		if err == nil {
			err = failed
		}
	}
	return progress, err
}

// reduce removes a file or an empty folder of the trash, or a part of what a folder holds.
func reduce(bin *os.File, name string) (progress bool, err error) {
	if err := remove(bin, name); !errors.Is(err, unix.ENOTEMPTY) {
		return err == nil, err
	}
	folder, err := open(bin, name)
	if err != nil {
		return false, err
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(perRound)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	for _, inner := range names {
		failed := remove(folder, inner)
		if errors.Is(failed, unix.ENOTEMPTY) {
			failed = lift(folder, inner, bin)
		}
		progress = progress || failed == nil
		if err == nil {
			err = failed
		}
	}
	return progress, err
}

// remove removes a file or an empty folder. The error is ENOTEMPTY if it is a folder that is not empty.
func remove(in *os.File, name string) error {
	err := unix.Unlinkat(int(in.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(in.Fd()), name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EEXIST):
		return unix.ENOTEMPTY
	}
	return &os.PathError{Op: "remove", Path: filepath.Join(in.Name(), name), Err: err}
}

// lift moves a folder into the trash. Who moves a folder to another one has to have the right to write to it.
func lift(from *os.File, name string, bin *os.File) error {
	move := func() error { return unix.Renameat(int(from.Fd()), name, int(bin.Fd()), rand.Text()) }
	err := move()
	if errors.Is(err, unix.EACCES) {
		if folder, opened := open(from, name); opened == nil {
			_ = folder.Close()
			err = move()
		}
	}
	if err != nil {
		return &os.PathError{Op: "move", Path: filepath.Join(from.Name(), name), Err: err}
	}
	return nil
}

// open opens a folder, and takes the right to write to it. It follows no link that was put in its place.
func open(in *os.File, name string) (*os.File, error) {
	path := filepath.Join(in.Name(), name)
	pin, err := unix.Openat(int(in.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(pin) }()
	pinned := filepath.Join("/proc/self/fd", strconv.Itoa(pin))
	_ = os.Chmod(pinned, 0o700)
	fd, err := unix.Open(pinned, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
