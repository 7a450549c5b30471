package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Start starts a supervisor that starts the processes. What can never work is recorded as the end. The first attempt of
// a job with an uploaded folder, or with the checkpoints of another job, gets them before, while others start; so does
// each attempt of a job with data at an address.
func (b *Backend) Start(ctx context.Context, s launch.Setting) error {
	if b.people != nil {
		if s.Spec.Upload == "" {
			return b.startAs(s, nil)
		}
		b.startPrepared(ctx, s)
		return nil
	}
	if s.Spec.DataURL != "" || s.Spec.Upload != "" && !exists(b.Upload(s.Job)) || s.Spec.Continue != "" && !exists(b.continued(s.Job)) {
		b.startPrepared(ctx, s)
		return nil
	}
	return b.start(s)
}

func (b *Backend) start(s launch.Setting) error {
	made, end, err := b.compose(s)
	switch {
	case err != nil:
		return err
	case end != nil:
		return refuse(b.Attempt(s.Job, s.Attempt.Number), *end)
	}
	return b.Spawn(made)
}

// compose makes the launch of an attempt, and the folders and files that it names. What can never work is an end.
func (b *Backend) compose(s launch.Setting) (made Launch, end *train.Exit, err error) {
	dir := b.Attempt(s.Job, s.Attempt.Number)
	if why := lacks(s); why != "" {
		return made, &train.Exit{Code: launch.CannotStart, Message: why}, nil
	}
	if reason := diskTrouble(b.DataDir); reason.Code != "" {
		return made, &train.Exit{Lost: true, Unstarted: true, Reason: reason}, nil
	}
	s.Mounted = b.Mounts(s.Spec)
	if err := b.resolveFolders(&s); err != nil {
		return made, new(unstarted(err)), nil
	}
	s.TokenFile, s.Unreported = filepath.Join(dir, tokenName), filepath.Join(dir, unreportedName)
	if err := os.MkdirAll(s.Unreported, b.reportsMode()); err != nil {
		return made, nil, fmt.Errorf("make the folder of reports: %w", err)
	}
	n := len(s.Processes())
	ports, err := freePorts(n + 1)
	if err != nil {
		return made, nil, err
	}
	s.Ports = ports[:n]
	switch {
	case s.Spec.Launch == train.LaunchPerDevice && n > 1:
		s.HorovodPort = ports[n]
	case s.Spec.Launch != train.LaunchPerDevice && s.Spec.Image == "": // a container sees no files of the scheduler
		s.HostFile = filepath.Join(dir, hostsName)
		if err := writeHosts(s); err != nil {
			return made, nil, err
		}
	}
	if s.Spec.Image != "" {
		if err := b.bounds.writeEnvironments(b.Layout, s); errors.Is(err, errLines) {
			return made, new(unstarted(err)), nil
		} else if err != nil {
			return made, nil, err
		}
	}
	made = Compose(s, b.Layout, b.bounds, joblog.Header(s.Attempt, time.Now().UTC().Format(time.RFC3339)))
	if made.Sandbox != SandboxNone {
		made.Hidden, made.Kept = b.visible(s)
	}
	return made, nil, nil
}

// reportsMode is that of the folder from which the executor takes reports, which may be another user.
func (b *Backend) reportsMode() os.FileMode {
	if b.People {
		return 0o770
	}
	return 0o700
}

// lacks says what a node lacks that an attempt needs there; it is empty if that is nothing. The folder of the daemon is
// what the node's record says, and containers see it, so it must be one.
func lacks(s launch.Setting) string {
	if s.Spec.Image != "" && engine.Named(s.Home().ContainerRuntime) == engine.None {
		return "this node has no container runtime (docker or podman) to run the image in"
	}
	if pipes := s.Home().MPSDir; pipes != "" && !exists(filepath.Join(pipes, "control")) {
		return pipes + " is not where NVIDIA's Multi-Process Service has its pipes: it has none of the name control"
	}
	return ""
}

func writeHosts(s launch.Setting) error {
	if err := makeFolder(filepath.Dir(s.HostFile)); err != nil {
		return err
	}
	if err := os.WriteFile(s.HostFile, []byte(s.HostFileText()), 0o600); err != nil {
		return fmt.Errorf("write the slots for mpirun: %w", err)
	}
	return nil
}

// unstarted returns the end of an attempt that could not be started. If its machine is in trouble, another attempt may
// start.
func unstarted(err error) train.Exit {
	if !passes(err) {
		return train.Exit{Code: launch.CannotStart, Message: err.Error()}
	}
	return train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{
		Code: "MachineTrouble", Message: err.Error(), Hint: "`df -h` and `df -i` on the node show whether a disk is full",
	}}
}

// passes reports whether an error says that a disk or the kernel of the machine is in trouble, which may pass.
func passes(err error) bool {
	troubles := []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ESTALE, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN}
	return slices.ContainsFunc(troubles, func(trouble error) bool { return errors.Is(err, trouble) })
}

// freePorts finds ports that are free now. Another process may take one before it is used; the attempt then fails to
// meet and reports that.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing is waited for
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			ports[i] = a.Port
		}
	}
	return ports, nil
}

// Starting reports whether a supervisor is about to take the attempt over. A supervisor that failed says why in a
// file, not here.
func (b *Backend) Starting(a train.Attempt) (bool, error) {
	b.reap()
	dir := b.Attempt(a.Job, a.Number)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.preparing[dir] || b.child(dir) || b.troubles[dir] == nil && b.launched(a.Job, a.Number) {
		return true, nil
	}
	return false, cmp.Or(b.troubles[dir], errNotTaken)
}

var errNotTaken = errors.New("no supervisor has taken it over; shim.log in the attempt's folder may say why")

// hasChild reports whether a supervisor that this process started for the attempt has not been reaped yet.
func (b *Backend) hasChild(dir string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.child(dir)
}

// child is hasChild for those who hold the lock.
func (b *Backend) child(dir string) bool {
	for _, d := range b.children {
		if d == dir {
			return true
		}
	}
	return false
}

// Spawn starts a supervisor for the launch, unless one was started for this attempt before. It does not wait for it.
// On a busy machine a supervisor may take a while to claim the attempt; no other one is started until it has ended.
func (b *Backend) Spawn(l Launch) error {
	dir := b.Attempt(l.Job, l.Attempt)
	if b.hasChild(dir) {
		return nil
	}
	if err := makeFolder(dir); err != nil {
		return err
	}
	if exists(filepath.Join(dir, claimName)) {
		return nil
	}
	// An existing launch file was written by an executor that died before it saw a supervisor: a supervisor may have read
	// the file.
	path := filepath.Join(dir, launchName)
	if _, found, err := readWhole[Launch](path); err != nil {
		return err
	} else if !found {
		if err := writeJSON(path, l, installation.ReplaceFile); err != nil {
			return err
		}
	}
	stderr, err := os.OpenFile(filepath.Join(dir, stderrName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start the supervisor of %s: %w", l.Job, err)
	}
	defer func() { _ = stderr.Close() }()
	started, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the supervisor of %s: %w", l.Job, err)
	}
	defer func() { _ = tell.Close() }()
	cmd := b.bounds.Supervisor.command(dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tell, stderr, stderr
	if l.Runtime == engine.None { // only the client of a container runtime needs the executor's environment
		cmd.Env = []string{}
	}
	// In a session of its own, neither the terminal nor the end of the executor reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	l.Sandbox.apply(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		_ = started.Close()
		return fmt.Errorf("start the supervisor of %s: %w", l.Job, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.children[cmd.Process.Pid] = dir
	b.awaitStart(l.Job, started)
	return cmd.Process.Release()
}

// awaitStart looks at a job again once its supervisor has closed its end of a pipe: its programs run, or it has ended.
// The caller holds the lock.
func (b *Backend) awaitStart(job train.JobID, started *os.File) {
	changed := b.changed
	b.awaited[started] = true
	b.followers.Go(func() {
		_, _ = started.Read(make([]byte, 1))
		_ = started.Close()
		b.mu.Lock()
		delete(b.awaited, started)
		b.mu.Unlock()
		changed(job)
	})
}

// Refuse records the end of an attempt that cannot be started. It does nothing if the attempt was started before.
func (b *Backend) Refuse(_ context.Context, a train.Attempt, e train.Exit) error {
	return refuse(b.Attempt(a.Job, a.Number), e)
}

// refuse records in its folder the end of an attempt that cannot be started. It does nothing if the attempt was started
// before.
func refuse(dir string, e train.Exit) error { return refuseBy(dir, e, installation.WriteFile) }

// refuseBy is refuse for a file that is written in some way.
func refuseBy(dir string, e train.Exit, write func(string, []byte) error) error {
	if err := makeFolder(dir); err != nil {
		return err
	}
	lock, err := tryLock(filepath.Join(dir, lockName))
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	taken, err := claim(dir, func() error { return nil })
	if err != nil || !taken {
		return err
	}
	return writeJSON(filepath.Join(dir, exitName), exitFile{Exit: e, ExitedAt: time.Now().UTC()}, write)
}
