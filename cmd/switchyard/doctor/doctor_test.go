package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// bare is a machine on which nearly everything is absent.
func bare() survey {
	return survey{
		Server: "/usr/local/bin/switchyard-server", Kernel: "Linux 6.8.0", Arch: "amd64", Cores: 2, Memory: 8 * unit.GiB, GPUTrouble: "no nvidia-smi in PATH", RAPLZones: 2, PerfTrouble: "count task-clock on processor 0: open counter: permission denied", Cgroup: 1,
		MountTrouble: "user.max_user_namespaces is 0", MountFix: "sysctl user.max_user_namespaces=10000", ContainerTrouble: "no docker in PATH; podman: \x1b[31mpermission denied", BusURL: "nats://127.0.0.1:4222", Port: 4222,
		DataDir: "/home/ann/.local/state/switchyard", DataFree: unit.GiB, SurveyedAt: clitest.Noon, Kubelet: kubeletSurvey{Root: "/var/lib/kubelet"},
	}
}

// full is a machine that has it all.
func full() survey {
	return survey{
		Server: "/usr/bin/switchyard-server", Supervisor: "/usr/bin/switchyard-supervisor", Kernel: "Linux 6.8.0", Arch: "amd64", Cores: 64, Memory: 512 * unit.GiB, Root: true, GPUs: []string{"NVIDIA H200, 143771 MiB", "NVIDIA H200, 143771 MiB"}, RAPLZones: 3, RAPLReadable: 3,
		PerfEvents: 49, PerfHardware: 49, Cgroup: 2, Containers: []string{"docker 28.1.0"}, Python: "3.12.3 (/usr/bin/python3)", Torch: "2.7.0",
		Packages: map[string]bool{"switchyard": true, "kubernetesdlprofile": true}, BusURL: "nats://10.0.0.1:4222", BusUp: true, Port: 4222, PortTrouble: "another process listens there",
		DataDir: "/srv/switchyard", DataFree: 900 * unit.GiB, SurveyedAt: clitest.Noon, Driver: driverSurvey{Cards: 2, Module: "570.86.15", Library: "570.86.15"},
		Engines: []engineSurvey{{Name: "docker", DefaultRuntime: "runc", Where: "/etc/docker/daemon.json"}, {Name: "containerd", DefaultRuntime: "nvidia"}},
		Kubelet: kubeletSurvey{Root: "/var/lib/kubelet", There: true, PodLogs: "/var/log/pods"},
		Nodes: []*train.Node{
			{ID: "gpu1", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}, {ID: "gpu:1", Kind: train.KindGPU}}, Meters: []string{"nvml_counter", "rapl"}, SeenAt: clitest.Ago(time.Second)},
			{ID: "gpu2", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}, SeenAt: clitest.Ago(time.Hour)},
			{
				ID: "gpu3", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}, Meters: []string{"nvml"}, SeenAt: clitest.Ago(time.Second),
				MeterTroubles: map[string]string{"rapl": "read power zone intel-rapl:0 (package-0): permission denied", "pdu": "ask for power: no route to host"},
			},
		},
	}
}

// A finding names the right that is missing, and never tells anybody to run jobs as root. The agent of a node of
// Kubernetes, which runs none, needs that for the folders of the kubelet.
func TestNobodyIsToldToRunJobsAsRoot(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "doctor-*.txt"))
	if err != nil || len(paths) < 3 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "as root") && !strings.Contains(line, "run the node agent as root") || strings.Contains(line, "sudo") {
				t.Errorf("%s: %s", path, line)
			}
		}
	}
}

func TestFindings(t *testing.T) {
	clitest.Golden(t, "doctor-bare.txt", findingsText(findings(bare())))
	roomy := full()
	roomy.JobsDir = "/var/lib/switchyard-jobs"
	roomy.Usage = []bus.Usage{{Name: "SAMPLES", Bytes: 99, MaxBytes: 100}, {Name: "JOBS", Bytes: 1 << 30, MaxBytes: 4 << 30, Refuses: true}, {Name: "ENERGY", Bytes: 1, MaxBytes: 1 << 30, Refuses: true}}
	clitest.Golden(t, "doctor-full.txt", findingsText(findings(roomy)))
	broken := bare()
	broken.JobsDir, broken.QuotaTrouble = "/var/lib/switchyard-jobs", "/var/lib/switchyard-jobs: the file system counts no projects"
	broken.DataTrouble, broken.PortTrouble, broken.Python = "/home/ann cannot be written to", "another process listens there", "3.9.2 (/usr/bin/python3)"
	broken.Usage = []bus.Usage{{Name: "JOBS", Bytes: 35 << 30, MaxBytes: 40 << 30, Refuses: true}}
	broken.PerfTrouble, broken.PerfEvents, broken.RAPLZones, broken.Cgroup = "", 8, 0, 0
	broken.Driver = driverSurvey{Cards: 1, Module: "535.54.03", Library: "550.54.15"}
	broken.Kubelet = kubeletSurvey{There: true, RegistryTrouble: "no permission for /var/lib/kubelet/plugins_registry", PodLogTrouble: "/var/log/pods is not there"}
	clitest.Golden(t, "doctor-broken.txt", findingsText(findings(broken)))
}

func TestOnlyWhatIsBrokenFails(t *testing.T) {
	s := clitest.NewWithoutBus()
	for name, tc := range map[string]struct {
		survey survey
		code   int
	}{"bare": {bare(), exit.OK}, "full": {full(), exit.OK}, "broken": {survey{DataTrouble: "x"}, exit.Failed}} {
		for _, s.Output = range []string{"table", "json"} {
			err := printFindings(s.Console, findings(tc.survey))
			code := exit.OK
			if coded, ok := errors.AsType[*exit.Error](err); ok {
				code = coded.Code
			}
			out, _ := s.Printed()
			if code != tc.code {
				t.Errorf("%s: exit %d, want %d", name, code, tc.code)
			}
			if s.Output != "json" {
				continue
			}
			for _, f := range clitest.Parse[[]finding](t, out) {
				if f.Verdict != verdictOK && (f.Costs == "" || f.Fix == "") {
					t.Errorf("%s: %s does not say what it costs and what to do: %+v", name, f.Name, f)
				}
			}
		}
	}
}

// The machine of the test is looked at for real.
func TestDoctorHere(t *testing.T) {
	s := clitest.New(t, Command)
	s.Fill(t)
	dir := filepath.Join(t.TempDir(), "not", "yet", "there")
	code, out, stderr := s.Run("doctor", "--data-dir", dir, "-o", "json")
	if code != exit.OK {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	seen := map[string]finding{}
	for _, f := range clitest.Parse[[]finding](t, out) {
		seen[f.Name] = f
	}
	for _, name := range []string{"kernel", "processor", "GPU", "RAPL", "counters", "cgroups", "mounts", "containers", "Python", "data", "bus", "node"} {
		if seen[name].Detail == "" {
			t.Errorf("nothing about %s", name)
		}
	}
	if f := seen["bus"]; f.Verdict != verdictOK || f.Detail != s.Nats {
		t.Errorf("%+v", f)
	}
	if f := seen["data"]; !strings.HasPrefix(f.Detail, dir) {
		t.Errorf("%+v", f)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("makes the folder that it is to look at")
	}
}

func TestSurveyOfFolders(t *testing.T) {
	dir := t.TempDir()
	if free, trouble := surveyFolder(filepath.Join(dir, "a", "b")); free <= 0 || trouble != "" {
		t.Errorf("%v, %q", free, trouble)
	}
	file := filepath.Join(dir, "file")
	clitest.Write(t, file, "x")
	if _, trouble := surveyFolder(file); trouble != file+" is no folder" {
		t.Errorf("%q", trouble)
	}
	if _, trouble := surveyFolder(filepath.Join(file, "below")); trouble == "" {
		t.Error("a folder below a file")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("leaves something behind: %v, %v", left, err)
	}
}

func TestSurveyOfPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscanf(l.Addr().String(), "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	if trouble := surveyPort(t.Context(), port); trouble != "another process listens there" {
		t.Errorf("%q", trouble)
	}
	_ = l.Close()
	if trouble := surveyPort(t.Context(), port); trouble != "" {
		t.Errorf("%q", trouble)
	}
}

func TestSurveyOfTheKernel(t *testing.T) {
	dir := t.TempDir()
	if zones, readable := surveyRAPL(dir); zones != 0 || readable != 0 {
		t.Error(zones, readable)
	}
	clitest.Write(t, filepath.Join(dir, "intel-rapl:0", "energy_uj"), "1")
	clitest.Write(t, filepath.Join(dir, "intel-rapl:1", "energy_uj", "not a file"), "1")
	if zones, readable := surveyRAPL(dir); zones != 2 || readable != 1 {
		t.Error(zones, readable)
	}
	group := filepath.Join(dir, "cgroup")
	if version := surveyCgroup(group); version != 0 {
		t.Error(version)
	}
	clitest.Write(t, filepath.Join(group, "cpu", "tasks"), "")
	if version := surveyCgroup(group); version != 1 {
		t.Error(version)
	}
	clitest.Write(t, filepath.Join(group, "cgroup.controllers"), "")
	if version := surveyCgroup(group); version != 2 {
		t.Error(version)
	}
}

func TestSurveyOfMounts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		root  bool
		files map[string]string
		want  string
	}{
		{"root on a machine", true, map[string]string{"self/status": "Name:\tx\nCapEff:\t000001ffffffffff\n"}, ""},
		{"root in a container", true, map[string]string{"self/status": "CapEff:\t00000000a80425fb\n"}, "root without CAP_SYS_ADMIN, as in a container"},
		{"root without a status", true, nil, "root without CAP_SYS_ADMIN, as in a container"},
		{"user on an open machine", false, map[string]string{"sys/user/max_user_namespaces": "15000\n", "sys/kernel/unprivileged_userns_clone": "1\n"}, ""},
		{"no namespaces", false, map[string]string{"sys/user/max_user_namespaces": "0\n"}, "user.max_user_namespaces is 0"},
		{"not for users", false, map[string]string{"sys/kernel/unprivileged_userns_clone": "0\n"}, "kernel.unprivileged_userns_clone is 0"},
		{"restricted", false, map[string]string{"sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, "kernel.apparmor_restrict_unprivileged_userns is 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proc := t.TempDir()
			for name, text := range tc.files {
				clitest.Write(t, filepath.Join(proc, name), text)
			}
			if got, fix := surveyMounts(proc, tc.root); got != tc.want || (got == "") != (fix == "") {
				t.Errorf("%q, want %q; fix: %q", got, tc.want, fix)
			}
		})
	}
}

func TestSurveyOfTheDriver(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no nvidia-smi
	dir := t.TempDir()
	for card, files := range map[string][2]string{"0000:01:00.0": {"0x10de", "0x030200"}, "0000:02:00.0": {"0x10de", "0x020000"}, "0000:03:00.0": {"0x8086", "0x030000"}} {
		clitest.Write(t, filepath.Join(dir, "sys/bus/pci/devices", card, "vendor"), files[0]+"\n")
		clitest.Write(t, filepath.Join(dir, "sys/bus/pci/devices", card, "class"), files[1]+"\n")
	}
	if got := surveyDriver(t.Context(), filepath.Join(dir, "sys"), filepath.Join(dir, "proc")); got != (driverSurvey{Cards: 1}) {
		t.Errorf("%+v", got)
	}
	clitest.Write(t, filepath.Join(dir, "proc/driver/nvidia/version"),
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc version 11.4.0\n")
	clitest.Write(t, filepath.Join(dir, "bin/nvidia-smi"), "#!/bin/sh\necho 550.54.15\necho 550.54.15\n")
	if err := os.Chmod(filepath.Join(dir, "bin/nvidia-smi"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH")+":/bin")
	if got := surveyDriver(t.Context(), filepath.Join(dir, "sys"), filepath.Join(dir, "proc")); got != (driverSurvey{1, "550.54.15", "550.54.15"}) {
		t.Errorf("%+v", got)
	}
}

func TestDriverFindings(t *testing.T) {
	for _, c := range []struct {
		driver driverSurvey
		words  string
		ok     bool
	}{
		{driverSurvey{}, "", true},
		{driverSurvey{Cards: 1}, "no driver", false},
		{driverSurvey{1, "", "550.1"}, "without its kernel module", false},
		{driverSurvey{1, "550.1", ""}, "nvidia-smi does not work", false},
		{driverSurvey{1, "550.1", "535.1"}, "library 535.1", false},
		{driverSurvey{1, "580.65.06", "580.65.06"}, "CUDA 13", true},
		{driverSurvey{1, "525.60.13", "525.60.13"}, "CUDA 12", true},
		{driverSurvey{1, "470.1", "470.1"}, "CUDA 11", true},
		{driverSurvey{1, "390.157", "390.157"}, "390.157", false},
	} {
		list := driverFindings(c.driver)
		if c.words == "" {
			if len(list) != 0 {
				t.Errorf("%+v", list)
			}
			continue
		}
		if len(list) != 1 || !strings.Contains(list[0].Detail, c.words) || (list[0].Verdict == verdictOK) != c.ok || !c.ok && (list[0].Costs == "" || list[0].Fix == "") {
			t.Errorf("%+v: %+v, want %q, ok %v", c.driver, list, c.words, c.ok)
		}
	}
}

func TestSurveyOfEngines(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no docker
	etc := t.TempDir()
	if got := surveyEngines(t.Context(), etc); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	config := filepath.Join(etc, "containerd/config.toml")
	for _, step := range []struct{ path, text, want string }{
		{config, "version = 2\n", "runc"},
		{config, "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  default_runtime_name = \"crun\"\n", "crun"},
		{filepath.Join(etc, "containerd/conf.d/99-nvidia.toml"), "default_runtime_name = 'nvidia'\n", "nvidia"},
	} {
		clitest.Write(t, step.path, step.text)
		got := surveyEngines(t.Context(), etc)
		if want := (engineSurvey{"containerd", step.want, config}); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestSurveyOfTheKubelet(t *testing.T) {
	dir := t.TempDir()
	root, logs := filepath.Join(dir, "kubelet"), filepath.Join(dir, "logs")
	if got := surveyKubelet(root, logs); got.There {
		t.Errorf("%+v", got)
	}
	clitest.Write(t, filepath.Join(root, "plugins_registry"), "a file\n")
	got := surveyKubelet(root, logs)
	if !got.There || !strings.Contains(got.RegistryTrouble, "no folder") || !strings.Contains(got.PodLogTrouble, "not there") {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(filepath.Join(root, "plugins_registry")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(root, "plugins_registry"), logs} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := surveyKubelet(root, logs), (kubeletSurvey{Root: root, There: true, PodLogs: logs}); got != want {
		t.Errorf("%+v", got)
	}
}
