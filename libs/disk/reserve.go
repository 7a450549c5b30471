package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// reserveName is the file of a folder's reserve. It may be removed by hand.
const reserveName = "reserve"

// lookEvery is the time between two looks at the disk.
const lookEvery = time.Second

// KeepReserve keeps a file in a folder that takes room until ctx ends. It is removed when the disk is full, so that the
// ends of jobs can still be written down, and made again when there is ample room. Several processes may do so for one
// folder.
func KeepReserve(ctx context.Context, dir string, log *slog.Logger) {
	path := filepath.Join(dir, reserveName)
	for range tick.Every(ctx, lookEvery) {
		room, err := Of(dir)
		if err != nil {
			continue // the folder does not exist yet
		}
		switch held := Reserved(dir); {
		case held && room.Full():
			log.Error("the disk is full, and its reserve was released: make room", "dir", dir, "left", room.Free.String(), "of", room.Total.String())
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				log.Error("the reserve stays", "error", err)
			}
		case !held && room.Ample():
			if err := reserve(path, int64(room.measure())); err != nil {
				log.Debug("no reserve on the disk", "error", err)
			}
		}
	}
}

// Reserved reports whether a folder has its reserve.
func Reserved(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, reserveName))
	return err == nil && info.Size() > 0
}

func reserve(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("reserve room: %w", err)
	}
	// Only allocated blocks take room: a file with a hole would not.
	if err := errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, bytes), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("reserve room: %w", err), os.Remove(path))
	}
	return nil
}
