package installation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// SyncFolder makes what was created or renamed in a folder survive a crash of the machine.
func SyncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
