package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/seal"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
	"github.com/switchyard-dl/switchyard/services/executor/local/trash"
)

// Launcher starts attempts as users of the machine.
type Launcher struct {
	config Config
	// service is the user who may ask, firstUID the smallest number of a person.
	service  User
	firstUID int
	trees    cgroup.Trees
	// processes is set if the machine lets a job have a namespace of processes.
	processes bool
	// trash is where the folders of ended attempts go. Root's alone: what a user has put there is out of his reach.
	trash *trash.Trash
	log   *slog.Logger
	// mu is held while an attempt is launched or ended: what is true of it does not change in between.
	mu       sync.Mutex
	children conc.WaitGroup
}

// Config is how the launcher is started: by root alone, who writes it into a unit of systemd.
type Config struct {
	// Service is the name of the user who may ask.
	Service string
	// Socket is where he asks, Jobs the folder of all jobs, Key the file with the public half of admission's key.
	Socket, Jobs, Key string
	// PythonPath is added to the PYTHONPATH of jobs.
	PythonPath string
	// Mounts lets jobs have a file system of their own.
	Mounts bool
	// Disk bounds the space of a job's own folders, in GiB; 0 is no bound.
	Disk int
}

// Start is what a supervisor is started with. It is the launcher's word, but for Asked, which is that of the service.
type Start struct {
	Job        train.Job       `json:"job"`
	Attempt    int             `json:"attempt"`
	User       User            `json:"user"`
	Jobs       string          `json:"jobs"`
	Group      cgroup.Group    `json:"group"`
	Bounded    bool            `json:"bounded"`
	Mounts     bool            `json:"mounts"`
	Processes  bool            `json:"processes"`
	PythonPath string          `json:"python_path"`
	Env        []string        `json:"env"`
	Asked      json.RawMessage `json:"asked"`
}

// Argument is the hidden argument of a supervisor that reads a Start from its standard input.
const Argument = "__launched"

func (l *Launcher) layout() installation.Layout {
	return installation.Layout{DataDir: l.config.Jobs, People: true}
}

// serve answers until ctx ends. Supervisors stay.
func (l *Launcher) serve(ctx context.Context, listener *net.UnixListener) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var answering conc.WaitGroup
	defer answering.Wait()
	listening, done := context.WithCancel(ctx)
	defer done()
	answering.Go(func() { l.trash.Empty(listening, l.log) })
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		answering.Go(func() { l.answer(ctx, conn) })
	}
}

// answer answers one request, if it comes from the service.
func (l *Launcher) answer(ctx context.Context, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(exchangeTime))
	if uid, err := peer(conn); err != nil || uid != l.service.UID {
		l.log.Warn("refused a request of another user", "uid", uid, "error", err)
		return
	}
	r, file, err := receive(conn)
	if file != nil {
		defer func() { _ = file.Close() }()
	}
	var a answer
	if err == nil {
		a.Left, err = l.do(ctx, r, file)
	}
	if err != nil {
		_, a.Refused = errors.AsType[*RefusedError](err)
		a.Error = err.Error()
		l.log.Warn("refused", "do", r.Do, "job", r.Job.ID, "attempt", r.Attempt, "error", err)
	}
	data, _ := json.Marshal(a)
	_, _ = conn.Write(data)
}

// peer returns the user at the other end of a socket, as the kernel knows him.
func peer(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var found *unix.Ucred
	failed := raw.Control(func(fd uintptr) { found, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(failed, err); err != nil {
		return -1, err
	}
	return int(found.Uid), nil
}

func refused(format string, args ...any) error {
	return &RefusedError{fmt.Sprintf(format, args...)}
}

// acts are the requests that the launcher knows. known is what is written down of the job, groups are those of the
// attempt.
func (l *Launcher) acts() map[string]func(ctx context.Context, r request, known Record, groups cgroup.Groups, file *os.File) (left int, err error) {
	return map[string]func(context.Context, request, Record, cgroup.Groups, *os.File) (int, error){
		doLaunch: func(ctx context.Context, r request, known Record, _ cgroup.Groups, file *os.File) (int, error) {
			return 0, l.launch(ctx, r, known, file)
		},
		doSignal: func(_ context.Context, r request, known Record, groups cgroup.Groups, _ *os.File) (int, error) {
			if r.Attempt != known.Attempt || known.PID == 0 || known.BootID != bootID() {
				return 0, nil
			}
			return 0, groups.Signal(known.PID, unix.SIGTERM)
		},
		doKill: func(_ context.Context, _ request, _ Record, groups cgroup.Groups, _ *os.File) (int, error) {
			return groups.Kill(), nil
		},
		doRetune: func(_ context.Context, r request, known Record, groups cgroup.Groups, _ *os.File) (int, error) {
			return 0, l.retune(r, known, groups)
		},
		doForget: func(_ context.Context, r request, _ Record, groups cgroup.Groups, _ *os.File) (int, error) {
			return 0, l.forget(r, groups)
		},
	}
}

// do does what the service asks for.
func (l *Launcher) do(ctx context.Context, r request, file *os.File) (left int, err error) {
	act, is := l.acts()[r.Do]
	if !is {
		return 0, refused("the launcher does not know how to %.80q", r.Do)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known, _, err := Read(l.layout(), r.Job.ID)
	if err != nil {
		return 0, err
	}
	groups := known.Groups
	if r.Attempt != known.Attempt {
		groups = l.groups(r)
	}
	return act(ctx, r, known, groups, file)
}

// groups returns the groups of an attempt that is launched now.
func (l *Launcher) groups(r request) cgroup.Groups {
	return l.trees.Of(l.layout().DataDir, train.Attempt{Job: r.Job.ID, Number: r.Attempt}.Name())
}

// retune tells the supervisor of an attempt how many processors each process gets. It moves the user's threads itself,
// with the user's rights, within those that the attempt was started on.
func (l *Launcher) retune(r request, known Record, groups cgroup.Groups) error {
	if r.Attempt != known.Attempt || !known.Retunes || known.PID == 0 || known.BootID != bootID() || r.Cores < 1 {
		return refused("attempt %d of %s cannot be given %d processors", r.Attempt, r.Job.ID, r.Cores)
	}
	path := CoresFile(l.layout(), r.Job.ID)
	err := os.WriteFile(path+".new", []byte(strconv.Itoa(r.Cores)), 0o644) // it is no secret, and root owns the folder
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write down the processors of %s: %w", r.Job.ID, err)
	}
	return groups.Signal(known.PID, RetuneSignal)
}

// launch starts an attempt of a job that admission has signed, unless it, or a later one, was started before.
func (l *Launcher) launch(ctx context.Context, r request, last Record, file *os.File) error {
	public, err := readKey(l.config.Key)
	if err != nil {
		return err
	}
	if err := seal.Check(public, r.Job); err != nil {
		return refused("%v", err)
	}
	u, err := person(ctx, r.Job.Spec.UID, l.firstUID)
	switch {
	case err != nil:
		return refused("%v", err)
	case u.UID == l.service.UID:
		return refused("user %d %v", u.UID, errSystemUser)
	case r.Attempt <= last.Attempt:
		return refused("attempt %d of %s was launched before, and nothing runs twice", last.Attempt, r.Job.ID)
	case len(last.Groups.Members()) > 0:
		return refused("attempt %d of %s still runs", last.Attempt, r.Job.ID)
	}
	if err := l.makeFolders(r.Job.ID, r.Attempt, u); err != nil {
		return fmt.Errorf("make the folders of %s: %w", r.Job.ID, err)
	}
	now := Record{Attempt: r.Attempt, UID: u.UID, BootID: bootID(), Groups: l.groups(r)}
	if now.Bounded, err = now.Groups.Make(r.Bounds); err != nil {
		return err
	}
	// From here on, this attempt is never launched again, whatever becomes of it.
	if err := now.write(l.layout(), r.Job.ID, installation.WriteShared); err != nil {
		return err
	}
	if err := l.start(r, now, u, file); err != nil {
		now.Groups.Kill()
		return refused("start the supervisor of %s: %v", r.Job.ID, err)
	}
	l.log.Info("launched", "job", r.Job.ID, "attempt", r.Attempt, "user", u.Name)
	return nil
}

// start starts the supervisor as the user. It waits for its Start, and ends without one, so it does nothing before it
// is in its control groups, or after this process was killed.
func (l *Launcher) start(r request, now Record, u User, file *os.File) error {
	data, err := json.Marshal(Start{
		Job: r.Job, Attempt: r.Attempt, User: u, Jobs: l.config.Jobs, Group: now.Groups[0], Bounded: now.Bounded, Mounts: l.config.Mounts, Processes: l.processes,
		PythonPath: l.config.PythonPath, Env: ofMachine(os.Environ()), Asked: r.Asked,
	})
	if err != nil {
		return err
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = writing.Close() }()
	cmd := exec.Command("/proc/self/exe", Argument)
	cmd.Args[0], cmd.Dir, cmd.Env = "switchyard-supervisor", "/", []string{}
	cmd.Stdin, cmd.Stderr, cmd.SysProcAttr = reading, os.Stderr, u.attributes(l.config.Mounts, l.processes)
	if r.Job.Spec.Image != "" {
		cmd.SysProcAttr = u.rootless(l.processes)
	}
	if file != nil {
		cmd.ExtraFiles = []*os.File{file}
	}
	err = cmd.Start()
	_ = reading.Close()
	if err != nil {
		return err
	}
	l.children.Go(func() { _ = cmd.Wait() })
	if err := now.Groups.Add(cmd.Process.Pid); err != nil {
		return err
	}
	at, err := proc.Root("/proc").Process(cmd.Process.Pid)
	if err != nil {
		return err
	}
	now.PID, now.PIDStart, now.Retunes = at.PID, at.Start, true
	if err := now.write(l.layout(), r.Job.ID, installation.ReplaceShared); err != nil {
		return err
	}
	_, err = writing.Write(data)
	return err
}

// ofMachine returns the variables that describe the machine to everybody.
func ofMachine(env []string) []string {
	return slices.DeleteFunc(env, func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return name != "PATH" && name != "LANG" && name != "TZ" && !strings.HasPrefix(name, "LC_")
	})
}

// forget removes the folder and the groups of an attempt without processes. Launches wait for it, so what the user has
// put into the folder is removed later.
func (l *Launcher) forget(r request, groups cgroup.Groups) error {
	if left := len(groups.Members()); left > 0 {
		return fmt.Errorf("%w: it has %d processes", errRuns, left)
	}
	return errors.Join(l.trash.Throw(l.layout().Attempt(r.Job.ID, r.Attempt)), groups.Remove())
}

var (
	errRuns = errors.New("the attempt runs")
	errKey  = errors.New("belongs to another user than root, or others may write it: the key decides what may run as whom")
)

// readKey reads a file that root alone can write.
func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read admission's public key: %w", err)
	}
	defer func() { _ = f.Close() }()
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil || s.Uid != 0 || s.Mode&0o022 != 0 {
		return "", errors.Join(fmt.Errorf("%s %w", path, errKey), err)
	}
	const longest = 128
	data := make([]byte, longest)
	n, err := f.Read(data)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return strings.TrimSpace(string(data[:n])), nil
}

func bootID() string {
	id, _ := proc.Root("/proc").BootID()
	return id
}
