package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
)

// Sandbox says how a job gets its own file system.
type Sandbox string

// The kinds: none; a mount namespace; a mount namespace within a user namespace, for executors that are not root.
const (
	SandboxNone Sandbox = ""
	SandboxRoot Sandbox = "mounts"
	SandboxUser Sandbox = "user_mounts"
)

// apply makes the process that is about to be started able to mount.
func (s Sandbox) apply(a *syscall.SysProcAttr) {
	if s != SandboxUser {
		return
	}
	a.Cloneflags |= syscall.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	// The user stays the same. The right to mount within the namespace survives this exec, and is dropped before those
	// of the job's programs.
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
}

// probePrefix begins the name of a probe's folder; no job's name begins with it.
const probePrefix = ".probe-"

// ProbeSandbox finds out which sandbox this machine allows to jobs of a data folder. reason says why it allows none.
func ProbeSandbox(ctx context.Context, program Supervisor, dataDir string) (s Sandbox, reason, err error) {
	scratch := filepath.Join(dataDir, "jobs")
	if err := makeFolder(scratch); err != nil {
		return SandboxNone, nil, err
	}
	s, reason = Probe(ctx, program, scratch)
	return s, reason, nil
}

// Probe finds out which sandbox this machine allows: the program of supervisors runs `test` in it with folders mounted.
// The error says why there is none.
func Probe(ctx context.Context, program Supervisor, scratch string) (Sandbox, error) {
	kind := SandboxUser
	if os.Geteuid() == 0 {
		kind = SandboxRoot
	}
	if err := kind.try(ctx, program, scratch); err != nil {
		return SandboxNone, fmt.Errorf("probe mounts: %w", err)
	}
	return kind, nil
}

func (s Sandbox) try(ctx context.Context, program Supervisor, scratch string) error {
	return program.tries(ctx, scratch, func(dir string) Launch {
		return Launch{
			Sandbox: s, Hidden: filepath.Join(dir, "hidden"), Mounts: []Mount{{Source: dir, Target: "/custom"}, {Source: dir, Target: "/snapshots"}, {Source: dir, Target: "/data"}},
			Processes: []Process{{Args: []string{"test", "-e", "/custom/seen"}, Dir: "/custom"}},
		}
	})
}

// ProbeGroups finds out where this machine allows control groups to the attempts of a data folder: a supervisor runs
// `grep` in one of them. The error says why there are none.
func ProbeGroups(ctx context.Context, program Supervisor, machine cgroup.Machine, dataDir string) (cgroup.Parent, error) {
	parent, err := machine.Open()
	if err != nil {
		return "", err
	}
	scratch := filepath.Join(dataDir, "jobs")
	if err := makeFolder(scratch); err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s%d", probePrefix, os.Getpid())
	group := parent.Of(name)
	if _, err := group.Make(0); err != nil {
		return "", err
	}
	err = program.tries(ctx, scratch, func(string) Launch {
		return Launch{Group: group, Processes: []Process{{Args: []string{"grep", "-q", name, "/proc/self/cgroup"}, Dir: "/"}}}
	})
	if err = errors.Join(err, group.Remove()); err != nil {
		return "", fmt.Errorf("probe control groups: %w", err)
	}
	return parent, nil
}

// tries lets a supervisor start the program of a launch, which must succeed. The launch's folder has a file seen and a
// folder hidden.
func (s Supervisor) tries(ctx context.Context, scratch string, compose func(dir string) Launch) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	scratch, err := filepath.EvalSymlinks(scratch)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(scratch, probePrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	launch := compose(dir)
	launch.Version, launch.Processes[0].Env = launchVersion, []string{"PATH=" + os.Getenv("PATH")}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "seen"), nil, 0o600), os.Mkdir(filepath.Join(dir, "hidden"), 0o700), writeJSON(filepath.Join(dir, launchName), launch, installation.ReplaceFile)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.program(), tryArgument, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	launch.Sandbox.apply(cmd.SysProcAttr)
	if said, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(strings.TrimSpace(string(said))))
	}
	return nil
}

// try starts the program of a launch as a supervisor does, and waits for it.
func try(dir string) error {
	l, err := readLaunch(dir)
	if err != nil {
		return err
	}
	stage, err := newStage(l, dir)
	if err != nil {
		return err
	}
	pid, err := stage.start(l.Processes[0], [3]*os.File{stage.nothing, stage.nothing, stage.nothing}, &syscall.SysProcAttr{})
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		return errors.Join(errTried, err)
	}
	return nil
}

var errTried = errors.New("the program that was tried has failed")

// enter gives the calling thread its own file system: everything at the root of the machine but what is hidden, with
// the mounts beside it, under a root that cannot be written to. The thread is alone in its mount namespace, so nothing
// else is affected. base is any folder; it is covered for a moment.
func enter(base string, l Launch) error {
	// What is mounted from here on stays in here; what the machine mounts later is still seen.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("detach the mounts: %w", err)
	}
	pinned := make([]Mount, len(l.Mounts))
	for i, m := range l.Mounts {
		source, err := pin(m.Source)
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, plain(err))
		}
		defer func() { _ = source.Close() }()
		pinned[i] = Mount{Source: filepath.Join("/proc/self/fd", strconv.Itoa(int(source.Fd()))), Target: m.Target}
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
func build(mounts []Mount, devices []string) error {
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
		return plain(err)
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else {
		err = os.WriteFile(to, nil, 0o600)
	}
	if err != nil {
		return plain(err)
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
