package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// enter gives the calling thread its own file system: everything at the root of the machine but what is hidden, with
// the mounts beside it, under a root that cannot be written to. The thread is alone in its mount namespace, so nothing
// else is affected. base is any folder; it is covered for a moment.
func enter(base string, l attempt.Launch) error {
	// What is mounted from here on stays in here; what the machine mounts later is still seen.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("detach the mounts: %w", err)
	}
	pinned := make([]attempt.Mount, len(l.Mounts))
	for i, m := range l.Mounts {
		source, err := pin(m.Source)
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, attempt.Plain(err))
		}
		defer func() { _ = source.Close() }()
		pinned[i] = attempt.Mount{Source: filepath.Join("/proc/self/fd", strconv.Itoa(int(source.Fd()))), Target: m.Target}
	}
	if l.Hidden != "" {
		var err error
		if base, err = hide(l.Hidden, l.Kept); err != nil {
			return fmt.Errorf("hide %s: %w", l.Hidden, err)
		}
	}
	if err := stepAside(base); err != nil {
		return err
	}
	if err := build(pinned, l.ShownDevices); err != nil {
		return err
	}
	return leaveOldRoot()
}

// hide covers a folder by an empty one that shows only the given files and folders of it. It returns a folder for
// stepAside.
func hide(dir string, kept []string) (base string, err error) {
	slices.Sort(kept) // what contains others comes first
	pins := make([]*os.File, len(kept))
	for i, path := range kept {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", &os.PathError{Op: "open", Path: path, Err: err}
		}
		pins[i] = os.NewFile(uintptr(fd), path)
		defer func() { _ = pins[i].Close() }()
	}
	if err := unix.Mount("switchyard", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m"); err != nil {
		return "", err
	}
	base = filepath.Join(dir, ".root")
	if err := os.Mkdir(base, 0o755); err != nil {
		return "", err
	}
	for i, path := range kept {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := bindTo(filepath.Join("/proc/self/fd", strconv.Itoa(int(pins[i].Fd()))), path); err != nil {
			return "", err
		}
	}
	return base, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// pin opens a folder, so that what is put in its place later is not mounted. The path must be free of symbolic links:
// it was resolved when the launch was written, so a link in it was put there since, perhaps to lead out of the folders
// that jobs may use.
func pin(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if led, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd))); err != nil || led != filepath.Clean(path) {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s now leads to %s by a symbolic link", path, led)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Where the old and the new root are mounted while the new one is built.
const (
	oldRoot = "/old"
	newRoot = "/new"
)

// step is one change of the file system that a process sees.
type step struct {
	name string
	do   func() error
}

// inOrder takes steps until one fails.
func inOrder(steps ...step) error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// stepAside makes an empty file system the root and moves the machine's root below it, so that the new root can be
// built without being part of what it shows.
func stepAside(base string) error {
	old := filepath.Join(base, oldRoot)
	return inOrder(
		step{"make a root", func() error {
			return unix.Mount("switchyard", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m")
		}},
		step{"make a root", func() error { return os.Mkdir(old, 0o755) }},
		step{"make a root", func() error { return os.Mkdir(filepath.Join(base, newRoot), 0o755) }},
		step{"change the root", func() error { return unix.PivotRoot(base, old) }},
		step{"change the root", func() error { return os.Chdir("/") }},
		step{"bind the new root", func() error { return unix.Mount(newRoot, newRoot, "", unix.MS_BIND, "") }},
	)
}

// build fills the new root. An entry of the machine's root that cannot be shown (no permission) is left out; a mount
// of the job must succeed. devices are the entries of /dev that are shown, all if there are none.
func build(mounts []attempt.Mount, devices []string) error {
	taken := map[string]bool{"dev": len(devices) > 0}
	if taken["dev"] {
		if err := buildDevices(devices); err != nil {
			return err
		}
	}
	for _, m := range mounts {
		taken[strings.TrimPrefix(m.Target, "/")] = true
		if err := bindTo(filepath.Join(oldRoot, m.Source), filepath.Join(newRoot, m.Target)); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	entries, err := os.ReadDir(oldRoot)
	if err != nil {
		return fmt.Errorf("list the root: %w", err)
	}
	for _, e := range entries {
		if taken[e.Name()] {
			continue
		}
		from, to := filepath.Join(oldRoot, e.Name()), filepath.Join(newRoot, e.Name())
		if e.Type()&os.ModeSymlink != 0 {
			if target, err := os.Readlink(from); err == nil {
				_ = os.Symlink(target, to)
			}
			continue
		}
		_ = bindTo(from, to)
	}
	return nil
}

// bindTo shows a folder or file at another path, with everything that is mounted below it.
func bindTo(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return attempt.Plain(err)
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else {
		err = os.WriteFile(to, nil, 0o600)
	}
	if err != nil {
		return attempt.Plain(err)
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

// leaveOldRoot moves into the new root and gives up the old one.
func leaveOldRoot() error {
	return inOrder(
		step{"protect the root", func() error {
			return unix.Mount("", newRoot, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
		}},
		step{"enter the root", func() error { return os.Chdir(newRoot) }},
		// The old root ends up on top of the new one and is unmounted.
		step{"change the root", func() error { return unix.PivotRoot(".", ".") }},
		step{"give up the old root", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		step{"enter the root", func() error { return os.Chdir("/") }},
		// The right to mount ends here; root keeps it, like any process of root.
		step{"drop the right to mount", func() error {
			return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
		}},
	)
}

// buildDevices fills /dev of the new root with some entries of the machine's, and shared memory of its own.
func buildDevices(patterns []string) error {
	from, dev := filepath.Join(oldRoot, "dev"), filepath.Join(newRoot, "dev")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		return attempt.Plain(err)
	}
	if err := unix.Mount("switchyard", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=1m"); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return attempt.Plain(err)
	}
	for _, e := range entries {
		named := func(pattern string) bool { ok, _ := filepath.Match(pattern, e.Name()); return ok }
		if !slices.ContainsFunc(patterns, named) {
			continue
		}
		path, to := filepath.Join(from, e.Name()), filepath.Join(dev, e.Name())
		if e.Type()&os.ModeSymlink != 0 {
			if target, err := os.Readlink(path); err == nil {
				_ = os.Symlink(target, to)
			}
			continue
		}
		if err := bindTo(path, to); err != nil {
			return fmt.Errorf("show /dev/%s: %w", e.Name(), err)
		}
	}
	shm := filepath.Join(dev, "shm")
	if err := os.Mkdir(shm, 0o755); err != nil {
		return attempt.Plain(err)
	}
	if err := unix.Mount("switchyard", shm, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return err
	}
	return unix.Mount("", dev, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, "")
}
