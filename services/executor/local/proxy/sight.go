package proxy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// Sight is what the supervisor may look at for a job. The job makes the links in its folders, and the supervisor sees
// more of the machine than the job does.
type Sight struct {
	// Hidden is the data folder by its real path. Only the folders in Kept are the job's there.
	Hidden string   `json:"hidden,omitempty"`
	Kept   []string `json:"kept,omitempty"`
}

// shows reports whether a real path is the job's to look at.
func (s Sight) shows(real string) bool {
	in := func(folder string) bool { return installation.Below(real, folder) }
	return s.Hidden == "" || !in(s.Hidden) || slices.ContainsFunc(s.Kept, in)
}

// glob returns the files of a pattern.
func (s Sight) glob(pattern string) []string {
	names, _ := filepath.Glob(pattern) // a pattern is checked when its job is admitted
	return slices.DeleteFunc(names, func(name string) bool {
		real, err := filepath.EvalSymlinks(name)
		return err != nil || !s.shows(real)
	})
}

// open opens a file. What its name leads to may have changed since it was found.
func (s Sight) open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if real, err := installation.PathOf(f); err != nil || !s.shows(real) {
		_ = f.Close()
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrPermission)
	}
	return f, nil
}
