package installation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// ErrLocked says that another `switchyard up` works on a data folder.
var ErrLocked = errors.New("the data folder is in use")

// Lock makes sure that one `switchyard up` at a time works on a data folder, or returns ErrLocked. The lock ends with
// the process, however it ends.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "up.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	}
	return func() { _ = f.Close() }, nil
}

// Await waits until nobody else holds the file at path, be it another process or this one. The error is that of ctx if
// it ends first. The lock ends with the process, however it ends.
func Await(ctx context.Context, path string) (unlock func(), err error) {
	for range tick.Every(ctx, 20*time.Millisecond) {
		if unlock, err := Try(path); unlock != nil || err != nil {
			return unlock, err
		}
	}
	return nil, ctx.Err()
}

// Try is Await without the wait: unlock is nil if another one holds the file.
func Try(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return func() { _ = f.Close() }, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, f.Close()
	default:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
}
