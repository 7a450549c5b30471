package prepare

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
	"github.com/switchyard-dl/switchyard/services/executor/local/proxy"
	"github.com/switchyard-dl/switchyard/services/executor/local/screen"
)

// Bounds are the operator's settings for every attempt.
type Bounds struct {
	LogBytes        int64
	KillAfterMillis int64
	Sandbox         attempt.Sandbox
	// Groups is where attempts get control groups; empty if the machine allows none.
	Groups cgroup.Parent
	// User is the user whose rights jobs have; nil is that of the supervisor.
	User *attempt.User
	// Processors are the processors of the machine that jobs may use.
	Processors []int
}

// KillAfter is the time between asking processes to end and killing them.
func (b Bounds) KillAfter() time.Duration { return time.Duration(b.KillAfterMillis) * time.Millisecond }

// shellLinger is how long an interactive job waits for a terminal: longer than a scheduler takes to restart.
const shellLinger = 5 * time.Minute

// Compose makes the launch of an attempt on the machine itself or in containers.
func Compose(s launch.Setting, l installation.Layout, b Bounds, header string) attempt.Launch {
	made := attempt.Launch{
		Version: attempt.Version, User: b.User, Job: s.Job, Attempt: s.Attempt.Number, Marker: launch.Marker(s.Job, s.Attempt.Number, s.Token), Output: l.Output(s.Job), LimitBytes: b.LogBytes, Header: header,
		KillAfterMillis: b.KillAfterMillis, HorovodPort: s.HorovodPort, Group: b.Groups.Of(l.DataDir, s.Attempt.Name()),
	}
	made.Proxy = proxyOf(s, l)
	if shell := s.Spec.Shell; shell != nil {
		made.Shell = &screen.Shell{Keep: shell.Keep, LingerMillis: shellLinger.Milliseconds(), IdleMillis: time.Duration(shell.Idle).Milliseconds()}
	}
	if s.Spec.Image != "" {
		made.Runtime = Runtime(s)
		for rank := range s.Processes() {
			made.Processes = append(made.Processes, b.container(s, l, rank))
		}
		made.Beside = made.Processes[0]
		made.Beside.Args = append([]string{string(made.Runtime)}, clientFlags(l, s)...)
		made.Beside.Args = append(made.Beside.Args, "exec", "--interactive", "--tty", "--env", "TERM", made.Container(0))
		if l.People {
			made.Relay = &attempt.Relay{Socket: filepath.Join(apiFolder(l, s), apiSocket), To: s.Home().JobAPI}
		}
		return made
	}
	if s.Mounted {
		made.Sandbox, made.Mounts = b.Sandbox, mounts(s)
	}
	for rank, is := range s.Processes() {
		p := attempt.Process{Args: command(s), Env: environment(s, rank), Dir: workDir(s), CPUs: cpus(s, rank, b.Processors)}
		describe(&p, s, rank)
		if !p.Serves {
			p.Cores = s.Cores(is)
		}
		if p.Args[0] == "python" {
			p.Fallback = "python3"
		}
		made.Processes = append(made.Processes, p)
	}
	made.MemoryMiB = MemoryMiB(s)
	made.Beside = made.Processes[0]
	made.Beside.Args, made.Beside.Fallback = nil, ""
	return made
}

// Runtime returns what runs the containers of an attempt; none if it runs on the machine itself.
func Runtime(s launch.Setting) engine.Engine {
	if s.Spec.Image == "" {
		return engine.None
	}
	return engine.Named(s.Home().ContainerRuntime)
}

// MemoryMiB returns the main memory that the processes may take together; 0 if one of them has no bound. The scheduler
// of a job with parameter servers needs next to none.
func MemoryMiB(s launch.Setting) int64 {
	sum := int64(0)
	for _, p := range s.Processes() {
		each := s.MemoryMiB(p)
		if each == 0 && p.Role != launch.RoleScheduler {
			return 0
		}
		sum += each
	}
	return sum
}

// describe says what a process was given.
func describe(p *attempt.Process, s launch.Setting, rank int) {
	is := s.Processes()[rank]
	for _, d := range is.Devices {
		p.Devices = append(p.Devices, d.ID)
	}
	p.Serves, p.MemoryMiB = is.Serves(), s.MemoryMiB(is)
	if rank < len(s.Ports) {
		p.Port = s.Ports[rank]
	}
}

// proxyOf returns what the supervisor does for programs that do not call the job API; nil if it has nothing to do.
func proxyOf(s launch.Setting, l installation.Layout) *proxy.Spec {
	spec := s.Spec
	if spec.LogFormat == "" && spec.Checkpoint == "" && spec.Progress == nil {
		return nil
	}
	scheduler := s.Scheduler(0)
	p := &proxy.Spec{
		Sight:   sightOf(s.Job, l),
		Address: fmt.Sprintf("%s/v1/jobs/%s/", scheduler["SWITCHYARD_JOB_API"], scheduler["JOB_UUID"]), Format: spec.LogFormat,
		Checkpoints: filesOf(s, spec.Checkpoint), Signals: spec.Image == "" && spec.Checkpoint != "", EndsBySignal: spec.Preempt == train.PreemptBySignal,
	}
	if how := spec.Progress; how != nil {
		p.FromZero = filepath.Join(l.Job(s.Job), "epochs-from-0")
		p.Pattern, p.Names, p.Tables = how.Pattern, how.Names, filesOf(s, how.CSV)
		for _, depth := range []string{"", "*", "*/*"} {
			if how.TensorBoard != "" {
				p.Boards = append(p.Boards, filesOf(s, filepath.Join(how.TensorBoard, depth, "events.out.tfevents.*"))...)
			}
		}
	}
	return p
}

// sightOf returns what is looked at for a job. The rights of a person bound what is looked at for him.
func sightOf(job train.JobID, l installation.Layout) proxy.Sight {
	if l.People {
		return proxy.Sight{}
	}
	own := l.Real()
	return proxy.Sight{Hidden: own.DataDir, Kept: []string{own.Work(job), own.Snapshots(job), own.Upload(job)}}
}

// filesOf returns where the files of a pattern of a job are on this machine.
func filesOf(s launch.Setting, pattern string) []string {
	switch {
	case pattern == "":
		return nil
	case filepath.IsAbs(pattern):
		s.Mounted = false // as the supervisor sees it
		return []string{realPath(s, pattern)}
	}
	return []string{filepath.Join(workDir(s), pattern), filepath.Join(s.Snapshots, pattern), filepath.Join(s.Snapshots, s.Capability, pattern)}
}

func mounts(s launch.Setting) []attempt.Mount {
	var list []attempt.Mount
	for _, m := range []attempt.Mount{
		{Source: s.Custom, Target: launch.CustomTarget}, {Source: s.Snapshots, Target: launch.SnapshotsTarget}, {Source: s.Datasets, Target: launch.DataTarget},
	} {
		if m.Source != "" {
			list = append(list, m)
		}
	}
	return list
}

// command returns what a process runs. If nothing is mounted, paths below the mounted folders become the real ones.
func command(s launch.Setting) []string {
	args := s.Spec.Command
	if s.Spec.ScriptPath != "" {
		args = []string{"python", s.Spec.ScriptPath}
	}
	if len(args) == 0 {
		return []string{""} // there is no such program, and the attempt reports that
	}
	found := make([]string, len(args))
	for i, a := range args {
		found[i] = realPath(s, a)
	}
	return found
}

// realPath replaces a mounted folder at the beginning of a path by the real one, unless it is mounted.
func realPath(s launch.Setting, path string) string {
	if s.Mounted {
		return path
	}
	for _, m := range mounts(s) {
		if path == m.Target {
			return m.Source
		}
		if rest, below := strings.CutPrefix(path, m.Target+"/"); below {
			return filepath.Join(m.Source, rest)
		}
	}
	return path
}

func workDir(s launch.Setting) string {
	switch {
	case s.Spec.WorkDir != "":
		return realPath(s, s.Spec.WorkDir)
	case s.Custom != "":
		return realPath(s, launch.CustomTarget)
	default:
		return s.Work
	}
}

// containerLimits bounds the processors and the memory of a container. CPU slots bound the processors already.
func containerLimits(s launch.Setting, p launch.Process) []string {
	var args []string
	if n := s.Cores(p); n > 0 && (s.OnGPUs() || p.Serves()) {
		args = append(args, "--cpus", fmt.Sprint(n))
	}
	if mib := s.MemoryMiB(p); mib > 0 {
		args = append(args, "--memory", fmt.Sprintf("%dm", mib))
	}
	return args
}

// containerDevices gives a container the devices of its rank. With one process per device, each container still sees
// all GPUs of the job and picks its own by LOCAL_RANK, as it does outside of containers.
func containerDevices(s launch.Setting, rank int, people bool) []string {
	is := s.Processes()[rank]
	if is.Serves() {
		return nil
	}
	if !s.OnGPUs() {
		if people { // the client is bound to the processors, and has no control groups
			return nil
		}
		var cores []string
		for _, c := range attempt.First(cpus(s, rank, nil), s.Cores(is)) {
			cores = append(cores, fmt.Sprint(c))
		}
		return []string{"--cpuset-cpus", strings.Join(cores, ",")}
	}
	gpus := s.Places[0].GPUs()
	if len(gpus) == 0 {
		return nil // simulated GPUs have no device files
	}
	var args, indices []string
	if s.Places[0].UsesMPS() { // MPS clients share memory with the daemon
		args = append(args, "--ipc", "host", "--volume", s.Home().MPSDir+":"+s.Home().MPSDir)
	}
	for _, d := range gpus {
		indices = append(indices, d.ID.Index())
	}
	if engine.Named(s.Home().ContainerRuntime) == engine.Podman {
		for _, i := range indices {
			args = append(args, "--device", "nvidia.com/gpu="+i)
		}
		return args
	}
	// The quotes are part of the value: it is read as CSV, and the comma belongs to the field.
	return append(args, "--gpus", `"device=`+strings.Join(indices, ",")+`"`)
}
