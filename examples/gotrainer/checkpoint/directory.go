package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The names of the two checkpoints that a Directory keeps.
const (
	CurrentName  = "checkpoint.bin"
	PreviousName = "checkpoint.previous.bin"
)

const unfinishedPattern = "checkpoint.unfinished-*"

// Directory holds one job's newest checkpoint and the one before.
type Directory struct {
	path string
}

// Open creates the directory if needed, and removes files that a crash left half written.
func Open(path string) (Directory, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return Directory{}, fmt.Errorf("make snapshot directory: %w", err)
	}
	unfinished, err := filepath.Glob(filepath.Join(path, unfinishedPattern))
	if err != nil {
		return Directory{}, fmt.Errorf("list snapshot directory %s: %w", path, err)
	}
	for _, name := range unfinished {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Directory{}, fmt.Errorf("clear snapshot directory: %w", err)
		}
	}
	return Directory{path: path}, nil
}

// Path returns the path of the newest checkpoint.
func (d Directory) Path() string { return filepath.Join(d.path, CurrentName) }

// Save makes data the newest checkpoint and keeps the one before. It is on disk when Save returns. After a crash at any
// point Load finds a whole one: data is complete before it gets a name, and between the two renames the previous one
// has its name.
func (d Directory) Save(data []byte) error {
	unfinished, err := os.CreateTemp(d.path, unfinishedPattern)
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	_, err = unfinished.Write(data)
	err = errors.Join(err, unfinished.Sync(), unfinished.Close())
	if err == nil {
		err = os.Rename(d.Path(), filepath.Join(d.path, PreviousName))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // the first one
		}
	}
	if err == nil {
		err = os.Rename(unfinished.Name(), d.Path())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("save checkpoint: %w", err), os.Remove(unfinished.Name()))
	}
	return d.sync()
}

// sync makes the renames last.
func (d Directory) sync() error {
	directory, err := os.Open(d.path)
	if err != nil {
		return fmt.Errorf("sync snapshot directory: %w", err)
	}
	if err := errors.Join(directory.Sync(), directory.Close()); err != nil {
		return fmt.Errorf("sync snapshot directory %s: %w", d.path, err)
	}
	return nil
}

// Loaded is the result of Load.
type Loaded struct {
	State State
	// Found is false if no checkpoint was ever written.
	Found bool
	// Warning says in words why the newest was skipped; empty if it was not.
	Warning string
}

// Load reads the newest whole checkpoint. If there are checkpoints but none is whole, it returns an error: starting
// again silently would throw the training away.
func (d Directory) Load() (Loaded, error) {
	current, currentErr := read(d.Path())
	if currentErr == nil {
		return Loaded{State: current, Found: true}, nil
	}
	previous, previousErr := read(filepath.Join(d.path, PreviousName))
	noCurrent, noPrevious := errors.Is(currentErr, fs.ErrNotExist), errors.Is(previousErr, fs.ErrNotExist)
	switch {
	case previousErr == nil:
		return Loaded{State: previous, Found: true, Warning: fmt.Sprintf("%v; going back to the previous one, of epoch %d",
			currentErr, previous.Epochs)}, nil
	case noCurrent && noPrevious:
		return Loaded{}, nil
	case noPrevious:
		return Loaded{}, fmt.Errorf("load checkpoint: %w; there is no previous one", currentErr)
	default:
		return Loaded{}, fmt.Errorf("load checkpoint: %w; nor can the previous one be used: %w", currentErr, previousErr)
	}
}

func read(path string) (State, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return State{}, fmt.Errorf("read checkpoint: %w", err)
	}
	s, err := Decode(data)
	if err != nil {
		return State{}, fmt.Errorf("refuse %s: %w", path, err)
	}
	return s, nil
}
