package attempt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
	"github.com/switchyard-dl/switchyard/services/executor/local/proxy"
	"github.com/switchyard-dl/switchyard/services/executor/local/screen"
)

// Version is the version of launches that this program writes. It reads all versions up to this one. Supervisors of
// versions before 3 do not wait until the launch is there.
const Version = 3

// Launch is the whole description of an attempt: what runs as whom, where, on what and for how long. It is one file in
// the attempt's folder, and the supervisor reads no other.
type Launch struct {
	// Version is that of the program that wrote it; launches from before there was one have 0.
	Version int         `json:"version"`
	Job     train.JobID `json:"job"`
	Attempt int         `json:"attempt"`
	// User is the user whose rights the processes have; nil is that of the supervisor.
	User *User `json:"user,omitempty"`
	// Marker is a NAME=value that every process of the attempt has in its environment. It identifies what is left of
	// a lost attempt.
	Marker    string    `json:"marker"`
	Processes []Process `json:"processes"`
	// Mounts are bound into the attempt's own file system if Sandbox allows it.
	Mounts  []Mount `json:"mounts,omitempty"`
	Sandbox Sandbox `json:"sandbox,omitempty"`
	// Group is the control group of the processes; empty if the machine allows none. MemoryMiB is the main memory that
	// they may take together (0: no bound).
	Group     cgroup.Group `json:"group,omitempty"`
	MemoryMiB int64        `json:"memory_mib,omitempty"`
	// Held says that the launcher has made the group and put the supervisor into it; Bounded, that the kernel keeps it
	// within the memory.
	Held    bool `json:"held,omitempty"`
	Bounded bool `json:"bounded,omitempty"`
	// Output is the job's log, LimitBytes its largest size, Header the line that begins the attempt's part of it.
	Output     string `json:"output"`
	LimitBytes int64  `json:"limit_bytes"`
	Header     string `json:"header"`
	// Shell is set if the first process runs on a terminal. Beside is what runs on a terminal beside the processes, but
	// for the command itself.
	Shell *screen.Shell `json:"shell,omitempty"`
	// TerminalKey is the hash of the secret with which terminals are attached, if the launcher has started the
	// supervisor.
	TerminalKey string  `json:"terminal_key,omitempty"`
	Beside      Process `json:"beside,omitzero"`
	// Proxy is set if the supervisor calls the job API for the programs.
	Proxy *proxy.Spec `json:"proxy,omitempty"`
	// Relay leads from a container to the job API; nil if it needs none.
	Relay *Relay `json:"relay,omitempty"`
	// HorovodPort is where the supervisor serves the rendezvous of Horovod's processes; 0 if it does not.
	HorovodPort int `json:"horovod_port,omitempty"`
	// KillAfterMillis is the time between asking processes to end and killing them.
	KillAfterMillis int64 `json:"kill_after_ms"`
	// Runtime runs the processes in containers, which are no children of the supervisor; they are removed by name if
	// the attempt is ended by force.
	Runtime engine.Engine `json:"runtime,omitempty"`
	// OldCleanup is what launches of version 1 have instead of Runtime.
	OldCleanup [][]string `json:"cleanup,omitempty"`
	// ShownDevices are patterns of the entries of /dev that the processes see in their own file system; all if empty.
	ShownDevices []string `json:"shown_devices,omitempty"`
	// Hidden is the data folder; the processes see only the files and folders in Kept of it. It is empty without
	// Sandbox.
	Hidden string   `json:"hidden,omitempty"`
	Kept   []string `json:"kept,omitempty"`
}

// Process is one process to start.
type Process struct {
	Args []string `json:"args"`
	// Fallback is tried if Args[0] is not found.
	Fallback string   `json:"fallback,omitempty"`
	Env      []string `json:"env"`
	Dir      string   `json:"dir"`
	// CPUs are the processors that the process may use; if empty, it inherits them.
	CPUs []int `json:"cpus,omitempty"`
	// Cores is how many of the CPUs the process may use at first; 0 means all.
	Cores int `json:"cores,omitempty"`
	// Devices are what the process was given, Port is where the others reach it, and MemoryMiB is the main memory that
	// it may use (0: no limit). They are in its environment or its command, too.
	Devices   []train.DeviceID `json:"devices,omitempty"`
	Port      int              `json:"port,omitempty"`
	MemoryMiB int64            `json:"memory_mib,omitempty"`
	// Serves says that the process only serves the others: once they have ended, it is ended.
	Serves bool `json:"serves,omitempty"`
}

// Mount shows the folder Source of the machine at Target, a name at the root of the job's file system.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// User is a user of the machine by numbers.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups,omitempty"`
}

// Self returns the user of this process.
func Self() *User {
	groups, _ := os.Getgroups() // the system call has no error that can occur here
	return &User{UID: os.Geteuid(), GID: os.Getegid(), Groups: groups}
}

// Credential returns what makes a process one of this user; nil if it is one already. Only root can become another.
func (u *User) Credential() (*syscall.Credential, error) {
	switch uid := os.Geteuid(); {
	case u == nil, u.UID == uid && u.GID == os.Getegid():
		return nil, nil
	case uid != 0:
		return nil, fmt.Errorf("%w: uid %d asked for, %d here", ErrOtherUser, u.UID, uid)
	}
	c := &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	for _, g := range u.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c, nil
}

// ErrOtherUser is the error of a supervisor that cannot become the user of its launch.
var ErrOtherUser = errors.New("only a supervisor of root can run a job as another user")

// Relay passes what connects to a socket on to an address.
type Relay struct {
	Socket string `json:"socket"`
	To     string `json:"to"`
}

// Sandbox says how a job gets its own file system.
type Sandbox string

// The kinds: none; a mount namespace; a mount namespace within a user namespace, for executors that are not root.
const (
	SandboxNone Sandbox = ""
	SandboxRoot Sandbox = "mounts"
	SandboxUser Sandbox = "user_mounts"
)

// Apply makes the supervisor that is about to be started able to mount.
func (s Sandbox) Apply(a *syscall.SysProcAttr) {
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

var (
	errNoLaunch = errors.New("there is no launch file")
	errNewer    = errors.New("this supervisor is older than what started it: install switchyard-supervisor and switchyard-server of one version")
)

// WriteLaunch writes the launch of the attempt. It has the job's secrets, so nobody but its writer reads it.
func (f Folder) WriteLaunch(l Launch) error {
	f.Shared = false
	return f.replace(launchName, l)
}

// Launch reads the launch of the attempt, which must be there and of a version that is known here.
func (f Folder) Launch() (Launch, error) {
	l, found, err := readJSON[Launch](filepath.Join(f.Path, launchName))
	switch {
	case err != nil:
		return Launch{}, err
	case !found:
		return Launch{}, fmt.Errorf("%w in %s", errNoLaunch, f.Path)
	case l.Version > Version:
		return Launch{}, fmt.Errorf("%w (launches of version %d, not %d)", errNewer, Version, l.Version)
	}
	return l.upgraded(), nil
}

// KeptLaunch reads the launch of an attempt that may have ended in any way. found is false without a whole one.
func (f Folder) KeptLaunch() (l Launch, found bool, err error) {
	l, found, err = readWhole[Launch](filepath.Join(f.Path, launchName))
	return l.upgraded(), found, err
}

// upgraded returns a launch of any version as one of this version, which names no program but the known runtimes.
func (l Launch) upgraded() Launch {
	l.Runtime = engine.Named(string(l.Runtime))
	if len(l.OldCleanup) > 0 && len(l.OldCleanup[0]) > 0 {
		l.Runtime = engine.Named(l.OldCleanup[0][0])
	}
	return l
}

// OwnGroup returns the control group that the supervisor makes for the programs; empty if it is in theirs itself.
func (l Launch) OwnGroup() cgroup.Group {
	if l.Held {
		return ""
	}
	return l.Group
}

// Container returns the name of the container of a rank. It is the same for every executor of this data folder.
func (l Launch) Container(rank int) string {
	return ContainerName(l.Job, l.Attempt, len(l.Processes), rank)
}

// ContainerName returns the name of the container of a rank of an attempt.
func ContainerName(job train.JobID, attempt, ranks, rank int) string {
	name := fmt.Sprintf("switchyard-%s-%d", job, attempt)
	if ranks > 1 {
		name += fmt.Sprintf("-rank%d", rank)
	}
	return name
}

// cleanupTime bounds the commands that end containers.
const cleanupTime = 20 * time.Second

// RemoveContainers ends what is not a child of the supervisor. A container that is already gone is no error.
func (l Launch) RemoveContainers(ctx context.Context) {
	if l.Runtime == engine.None || l.Held { // the control groups hold what is the supervisor's
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	for rank := range l.Processes {
		_ = exec.CommandContext(ctx, string(l.Runtime), "rm", "--force", l.Container(rank)).Run()
	}
}
