package installation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// WriteFile replaces a file atomically. Its content is on disk before the file has its name, and both are on disk
// when it returns.
func WriteFile(path string, data []byte) error {
	if err := replace(path, data, (*os.File).Sync); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// ReplaceFile replaces a file atomically for every process that reads it. If the machine fails soon after, the file may
// be the old one, or not whole.
func ReplaceFile(path string, data []byte) error {
	return replace(path, data, func(*os.File) error { return nil })
}

// SharedMode lets the group of a file read it.
const SharedMode = 0o640

// WriteShared is WriteFile for a file that its group may read, ReplaceShared is ReplaceFile for such a file.
func WriteShared(path string, data []byte) error {
	if err := replace(path, data, func(f *os.File) error { return errors.Join(f.Chmod(SharedMode), f.Sync()) }); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// ReplaceShared replaces a file that its group may read; see WriteShared.
func ReplaceShared(path string, data []byte) error {
	return replace(path, data, func(f *os.File) error { return f.Chmod(SharedMode) })
}

func replace(path string, data []byte, sync func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, sync(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// PathOf returns the real path at which the kernel has an open file, whatever was put on its path since.
func PathOf(f *os.File) (string, error) {
	return os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd()))))
}

// OpenRegular opens a file to read it. The last part of its path may belong to another user: a link there is not
// followed, and nothing waits for a writer of a pipe.
func OpenRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errIrregular}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

var errIrregular = errors.New("want a file, found something else")

// Exists reports whether there is anything at a path. It follows no link, so a broken link exists.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// IsFolder reports whether there is a folder at a path, or a link to one.
func IsFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// MakeFolder makes a folder for this user alone, and those above it.
func MakeFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return nil
}

// SyncFile makes what was written to a new file survive a crash of the machine.
func SyncFile(path string) error {
	if err := syncPath(path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes what was created or renamed in a folder survive a crash of the machine.
func SyncFolder(path string) error { return syncPath(path) }

func syncPath(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
