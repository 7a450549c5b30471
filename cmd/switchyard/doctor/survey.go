package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// surveyMachine looks at this machine. It leaves empty what it cannot find out, or fills in the trouble.
func surveyMachine(ctx context.Context, a *console.Console, dataDir, kubeletRoot, podLogs string) survey {
	const defaultPort = 4222
	s := survey{
		Arch: goruntime.GOARCH, Cores: goruntime.NumCPU(), Root: os.Geteuid() == 0, DataDir: dataDir, BusURL: a.URL(), Port: defaultPort, SurveyedAt: time.Now(),
	}
	s.Kernel = kernel()
	if server, found := sibling.Find(sibling.Server); found {
		s.Server = server
		s.Supervisor, _ = sibling.FindSupervisor(server)
	}
	s.Memory = surveyMemory()
	s.GPUs, s.GPUTrouble = surveyGPUs(ctx)
	s.Driver = surveyDriver(ctx, "/sys", "/proc")
	s.Engines = surveyEngines(ctx, "/etc")
	s.Kubelet = surveyKubelet(kubeletRoot, podLogs)
	s.RAPLZones, s.RAPLReadable = surveyRAPL("/sys/class/powercap")
	surveyPerf(&s)
	s.Cgroup = surveyCgroup("/sys/fs/cgroup")
	s.MountTrouble, s.MountFix = surveyMounts("/proc", s.Root)
	s.Containers, s.ContainerTrouble = surveyContainers(ctx)
	s.JobsDir, s.QuotaTrouble = surveyQuotas("/var/lib/switchyard-jobs")
	surveyPython(ctx, &s)
	s.DataFree, s.DataTrouble = surveyFolder(dataDir)
	s.PortTrouble = surveyPort(ctx, s.Port)
	if about, answers := a.Web(ctx); answers {
		s.BusURL = about.Bus
	}
	nodes, usage, err := surveyBus(ctx, a)
	s.BusUp, s.Nodes, s.Usage = err == nil, nodes, usage
	if shut, is := errors.AsType[*exit.Error](err); is && errors.Is(err, fs.ErrPermission) {
		s.BusTrouble, s.BusFix = shut.Text, shut.Fix
	}
	return s
}

func kernel() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
}

// Say runs a program for a few seconds and returns its output. The trouble is the last line of its standard error.
func Say(ctx context.Context, env []string, name string, args ...string) (out, trouble string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	path, err := exec.LookPath(name)
	if err != nil {
		return "", "no " + name + " in PATH"
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		last := strings.TrimSpace(lines[len(lines)-1])
		if last == "" {
			last = err.Error()
		}
		return "", name + ": " + render.ClipText(last, troubleWidth)
	}
	return strings.TrimSpace(stdout.String()), ""
}

// troubleWidth bounds what is shown of what a program says of its trouble.
const troubleWidth = 160

func surveyGPUs(ctx context.Context) (gpus []string, trouble string) {
	out, trouble := Say(ctx, nil, "nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
	if trouble != "" {
		return nil, trouble
	}
	for line := range strings.Lines(out) {
		gpus = append(gpus, strings.TrimSpace(line))
	}
	if len(gpus) == 0 {
		trouble = "nvidia-smi lists no GPU"
	}
	return gpus, trouble
}

// surveyRAPL counts the energy counters below a folder, and those that can be read.
func surveyRAPL(folder string) (zones, readable int) {
	counters, _ := filepath.Glob(filepath.Join(folder, "*", "energy_uj")) // the pattern is well-formed
	for _, path := range counters {
		zones++
		if _, err := os.ReadFile(path); err == nil {
			readable++
		}
	}
	return zones, readable
}

// surveyCgroup returns the version of the hierarchy at a folder, or 0.
func surveyCgroup(folder string) int {
	if _, err := os.Stat(filepath.Join(folder, "cgroup.controllers")); err == nil {
		return 2
	}
	if entries, err := os.ReadDir(folder); err == nil && len(entries) > 0 {
		return 1
	}
	return 0
}

// surveyMounts returns the reason why a process may not make a mount namespace, or "", and the way to change that. It
// reads settings and makes no namespace.
func surveyMounts(proc string, root bool) (trouble, fix string) {
	if root {
		if capabilities(filepath.Join(proc, "self", "status"))&mayMount != 0 {
			return "", ""
		}
		return "root without CAP_SYS_ADMIN, as in a container", "give the container CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN)"
	}
	for _, setting := range []struct{ file, forbids, allows string }{
		{"user/max_user_namespaces", "0", "10000"}, {"kernel/unprivileged_userns_clone", "0", "1"}, {"kernel/apparmor_restrict_unprivileged_userns", "1", "0"},
	} {
		data, err := os.ReadFile(filepath.Join(proc, "sys", setting.file))
		if err == nil && strings.TrimSpace(string(data)) == setting.forbids {
			name := strings.ReplaceAll(setting.file, "/", ".")
			return name + " is " + setting.forbids, fmt.Sprintf("sysctl %s=%s", name, setting.allows)
		}
	}
	return "", ""
}

// capabilities reads the effective capabilities from a status file.
func capabilities(path string) uint64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, "CapEff:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return 0
			}
			return set
		}
	}
	return 0
}

func surveyContainers(ctx context.Context) (answering []string, trouble string) {
	const patience = 5 * time.Second
	var troubles []string
	for _, e := range engine.All() {
		if trouble := e.Trouble(ctx, patience); trouble != "" {
			troubles = append(troubles, render.ClipText(trouble, troubleWidth))
			continue
		}
		version, _ := Say(ctx, nil, string(e), "version", "--format", "{{.Server.Version}}")
		answering = append(answering, strings.TrimSpace(string(e)+" "+version))
	}
	return answering, strings.Join(troubles, "; ")
}

// pythonQuestion finds packages without importing them: importing PyTorch takes seconds.
const pythonQuestion = `
import importlib.metadata, importlib.util, json, platform, sys
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
def version(name):
    try:
        return importlib.metadata.version(name)
    except Exception:
        return "unknown version" if there(name) else ""
print(json.dumps({"python": platform.python_version() + " (" + sys.executable + ")", "torch": version("torch") if there("torch") else "",
                  "packages": {n: there(n) for n in sys.argv[1:]}}))
`

func surveyPython(ctx context.Context, s *survey) {
	var env []string
	if folder := os.Getenv("SWITCHYARD_PYTHON_PATH"); folder != "" { // what `switchyard up` adds for jobs
		env = append(env, "PYTHONPATH="+strings.TrimPrefix(os.Getenv("PYTHONPATH")+":"+folder, ":"))
	}
	out, trouble := Say(ctx, env, "python3", append([]string{"-c", pythonQuestion}, packageNames()...)...)
	if trouble != "" {
		return
	}
	var answer struct {
		Python   string          `json:"python"`
		Torch    string          `json:"torch"`
		Packages map[string]bool `json:"packages"`
	}
	if json.Unmarshal([]byte(out), &answer) == nil {
		s.Python, s.Torch, s.Packages = answer.Python, answer.Torch, answer.Packages
	}
}

// surveyFolder tries to write in a folder, or in its nearest existing parent, and returns the free space there.
func surveyFolder(dir string) (free unit.Bytes, trouble string) {
	existing := dir
	for {
		info, err := os.Stat(existing)
		if err == nil && !info.IsDir() {
			return 0, existing + " is no folder"
		}
		if err == nil {
			break
		}
		if above := filepath.Dir(existing); errors.Is(err, fs.ErrNotExist) && above != existing {
			existing = above
			continue
		}
		return 0, err.Error()
	}
	f, err := os.CreateTemp(existing, ".switchyard-doctor-")
	if err != nil {
		return 0, fmt.Sprintf("%s cannot be written to", existing)
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	var at unix.Statfs_t
	if err := unix.Statfs(existing, &at); err != nil {
		return 0, fmt.Sprintf("%s: %v", existing, err)
	}
	return unit.Bytes(at.Bavail) * unit.Bytes(at.Bsize), ""
}

// surveyPort returns the reason why this machine cannot listen on a port, or "".
func surveyPort(ctx context.Context, port int) string {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return "another process listens there"
		}
		return err.Error()
	}
	_ = l.Close()
	return ""
}

// surveyBus reads the nodes, as a person does, through the service web if that answers. How full the bus is, only its
// operator can read.
func surveyBus(ctx context.Context, a *console.Console) ([]*train.Node, []bus.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	y, done, err := a.Yard(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	nodes, err := y.Nodes(ctx)
	if err != nil && !errors.Is(err, bus.ErrAway) {
		return nil, nil, nil // a bus on which no service has run yet
	}
	if err != nil {
		return nil, nil, err
	}
	b, err := a.Connect(ctx)
	if err != nil {
		return nodes, nil, nil // a person without the operator's key
	}
	defer b.Close()
	usage, err := b.Usage(ctx)
	return nodes, usage, err
}
