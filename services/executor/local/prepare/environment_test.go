package prepare

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

func slots() launch.Setting {
	return launch.Setting{
		Job: "job-a", Spec: train.Spec{
			Command: []string{"train", "--data", "/data/x"}, BatchSize: 32, TrainingSetSize: 6400, MaxEpochs: 12, Launch: train.LaunchPerNode,
			Env: map[string]string{"MINE": "yes", "WORLD_SIZE": "99", "JOB_UUID": "forged", "PATH": "/my/bin"},
		},
		Attempt: train.Attempt{Job: "job-a", Number: 3, Node: "node-1", Devices: []train.DeviceID{"cpu:1", "cpu:0"}, StartedEpochs: 4, TokenHash: "0123456789abcdef0123"},
		Places: []launch.Place{{
			Node:    train.Node{ID: "node-1", JobAPI: "127.0.0.1:8099", JobAPISocket: "/run/job-api/job.sock", ContainerRuntime: "docker"},
			Devices: []train.Device{{ID: "cpu:1", Kind: train.KindCPU, Core: 5}, {ID: "cpu:0", Kind: train.KindCPU, Core: 3}},
		}},
		Capability: "capability", Token: "token", Restarted: true, HeartbeatSteps: 10, Ports: []int{4001, 4002},
		Custom: "/home/me/code", Snapshots: "/home/me/saved", Datasets: "/home/me/datasets", Work: "/var/work",
		Base:   []string{"PATH=/usr/bin", "HOME=/home/me", "SWITCHYARD_NATS=nats://secret", "PYTHONPATH=/lib/a", "API_TOKEN=secret", "NCCL_DEBUG=INFO", "LC_ALL=C"},
		Passed: []string{"PYTHONPATH", "NCCL_*"}, PythonPath: "/lib/b",
	}
}

func gpus() launch.Setting {
	s := slots()
	s.Spec.Launch = train.LaunchPerDevice
	s.Places[0].Devices = []train.Device{{ID: "gpu:2", Kind: train.KindGPU, Memory: 10 * unit.GiB}, {ID: "gpu:0", Kind: train.KindGPU, Memory: 10 * unit.GiB}}
	s.Attempt.Devices = []train.DeviceID{"gpu:2", "gpu:0"}
	s.Attempt.Number, s.Attempt.StartedEpochs, s.Restarted, s.Mounted = 1, 0, false, true
	s.Spec.ArrayMember = &train.ArrayMember{Array: "sweep", Index: 3, Count: 10}
	return s
}

// The whole table of variables that a job finds, for one process on slots and for the second of two processes on
// GPUs.
func TestEnvironmentTable(t *testing.T) {
	common := map[string]string{
		"JOB_UUID": "capability", "EPOCHS_TO_BE_DONE": "12", "BATCH_SIZE": "32", "TRAINING_SET_SIZE": "6400", "HEARTBEAT_FREQ": "10",
		"NODELIST": "node-1", "NUM_GPUS": "2", "NUM_NODES": "1", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4001",
		"SWITCHYARD_JOB": "job-a", "SWITCHYARD_JOB_API": "http://127.0.0.1:8099/attempt/token", "SWITCHYARD_JOB_MANAGER": "127.0.0.1:8099",
		"SWITCHYARD_JOB_SOCKET": "/run/job-api/job.sock", "PYTHONUNBUFFERED": "1", "MINE": "yes", "PATH": "/my/bin", "HOME": "/home/me",
		"PYTHONPATH": "/lib/a:/lib/b", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
		"LC_ALL": "C", "NCCL_DEBUG": "INFO",
	}
	tests := []struct {
		name string
		s    launch.Setting
		rank int
		own  map[string]string
	}{
		{"slots", slots(), 0, map[string]string{
			"JOB_RESTARTED": "TRUE", "EPOCHS_DONE": "4", "WORLD_SIZE": "1", "RESERVED_MEM": "0", "PL_TORCH_DISTRIBUTED_BACKEND": "gloo",
			"TF_CONFIG":          `{"cluster":{"worker":["127.0.0.1:4001"]},"task":{"type":"worker","index":0}}`,
			"SWITCHYARD_ATTEMPT": "3", "SWITCHYARD_DEVICES": "cpu:1,cpu:0", "SWITCHYARD_DEVICE_RANK": "0", "SWITCHYARD_DEVICE_COUNT": "2", "CUDA_VISIBLE_DEVICES": "",
			"SWITCHYARD_JOB_ATTEMPT": train.Mark("job-a", 3, "token"), "SWITCHYARD_CUSTOM_DIR": "/home/me/code",
			"SWITCHYARD_SNAPSHOTS_DIR": "/home/me/saved", "SWITCHYARD_DATASETS_DIR": "/home/me/datasets",
			"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "4001",
			"OMPI_MCA_orte_default_hostfile": "/attempt/hosts", "PRTE_MCA_prte_default_hostfile": "/attempt/hosts", "OMPI_MCA_rmaps_base_oversubscribe": "1",
		}},
		{"gpus", gpus(), 1, map[string]string{
			"SWITCHYARD_ARRAY": "sweep", "SWITCHYARD_ARRAY_INDEX": "3", "SWITCHYARD_ARRAY_COUNT": "10",
			"JOB_RESTARTED": "FALSE", "EPOCHS_DONE": "0", "WORLD_SIZE": "2", "RESERVED_MEM": "10240", "PL_TORCH_DISTRIBUTED_BACKEND": "nccl",
			"TF_CONFIG":          `{"cluster":{"worker":["127.0.0.1:4001","127.0.0.1:4002"]},"task":{"type":"worker","index":1}}`,
			"SWITCHYARD_ATTEMPT": "1", "SWITCHYARD_DEVICES": "gpu:2,gpu:0", "SWITCHYARD_DEVICE_RANK": "1", "SWITCHYARD_DEVICE_COUNT": "2", "CUDA_VISIBLE_DEVICES": "2,0",
			"SWITCHYARD_JOB_ATTEMPT": train.Mark("job-a", 1, "token"), "RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
			"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2", "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1",
			"HOROVOD_HOSTNAME": "localhost", "HOROVOD_GLOO_IFACE": "lo", "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
			"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "4003",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.s.HostFile, test.s.HorovodPort = "/attempt/hosts", 4003
			want := maps.Clone(common)
			maps.Copy(want, test.own)
			got := map[string]string{}
			for _, pair := range environment(test.s, test.rank) {
				name, value, _ := strings.Cut(pair, "=")
				got[name] = value
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

// A job finds programs even if neither its submission nor the executor's environment has a PATH.
func TestAJobAlwaysHasAPath(t *testing.T) {
	s := slots()
	s.Base, s.Spec.Env = nil, nil
	if got := attempt.Variable(environment(s, 0), "PATH"); got != defaultPath {
		t.Errorf("PATH %q, want %q", got, defaultPath)
	}
}

func TestReservedMemoryIsWhatWasAskedFor(t *testing.T) {
	s := gpus()
	s.Spec.EstimatedMemoryMiB = 2048
	if got := s.Scheduler(0)["RESERVED_MEM"]; got != "2048" {
		t.Errorf("RESERVED_MEM %s, want 2048", got)
	}
}

func TestAJobSeesTheGPUThatItShares(t *testing.T) {
	s := gpus()
	s.Places[0].Devices, s.Places[0].Memory, s.Spec.EstimatedMemoryMiB = s.Places[0].Devices[1:2], 3*unit.GiB, 2100
	env := s.Scheduler(0)
	if env["CUDA_VISIBLE_DEVICES"] != s.Places[0].Devices[0].ID.Index() || env["RESERVED_MEM"] != "3072" {
		t.Errorf("CUDA_VISIBLE_DEVICES %q, RESERVED_MEM %q", env["CUDA_VISIBLE_DEVICES"], env["RESERVED_MEM"])
	}
}

// A job has the same share of each of several GPUs, also if every process has one of them.
func TestAJobSeesTheGPUsThatItShares(t *testing.T) {
	s := gpus()
	s.Places[0].Memory, s.Spec.EstimatedMemoryMiB = 3*unit.GiB, 2100
	for rank := range 2 {
		if env := s.Scheduler(rank); env["RESERVED_MEM"] != "3072" {
			t.Errorf("rank %d: RESERVED_MEM %q", rank, env["RESERVED_MEM"])
		}
	}
	s.Spec.Launch = train.LaunchPerNode
	if env := s.Scheduler(0); env["CUDA_VISIBLE_DEVICES"] != "2,0" || env["RESERVED_MEM"] != "3072" {
		t.Errorf("CUDA_VISIBLE_DEVICES %q, RESERVED_MEM %q", env["CUDA_VISIBLE_DEVICES"], env["RESERVED_MEM"])
	}
}

func TestComposeProcesses(t *testing.T) {
	bounds := Bounds{LogBytes: 1 << 20, KillAfterMillis: 5000, Sandbox: attempt.SandboxRoot}
	layout := installation.Layout{DataDir: "/var/lib/switchyard"}
	tests := []struct {
		name    string
		change  func(*launch.Setting)
		args    []string
		dir     string
		cpus    [][]int
		sandbox attempt.Sandbox
		mounts  int
	}{
		{"real folders", func(*launch.Setting) {}, []string{"train", "--data", "/home/me/datasets/x"}, "/home/me/code", [][]int{{3, 5}}, attempt.SandboxNone, 0},
		{"mounts", func(s *launch.Setting) { s.Mounted = true }, []string{"train", "--data", "/data/x"}, "/custom", [][]int{{3, 5}}, attempt.SandboxRoot, 3},
		{"script", func(s *launch.Setting) { s.Spec.ScriptPath = "/custom/a b.py" }, []string{"python", "/home/me/code/a b.py"}, "/home/me/code", [][]int{{3, 5}}, attempt.SandboxNone, 0},
		{
			"work_dir", func(s *launch.Setting) { s.Spec.WorkDir = "/custom/deep" },
			[]string{"train", "--data", "/home/me/datasets/x"},
			"/home/me/code/deep",
			[][]int{{3, 5}},
			attempt.SandboxNone, 0,
		},
		{"alone", func(s *launch.Setting) { s.Custom, s.Datasets = "", "" }, []string{"train", "--data", "/data/x"}, "/var/work", [][]int{{3, 5}}, attempt.SandboxNone, 0},
		{
			"per device", func(s *launch.Setting) { s.Spec.Launch = train.LaunchPerDevice },
			[]string{"train", "--data", "/home/me/datasets/x"},
			"/home/me/code",
			[][]int{{5}, {3}},
			attempt.SandboxNone, 0,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := slots()
			test.change(&s)
			l := Compose(s, layout, bounds, "header")
			if len(l.Processes) != len(test.cpus) || l.Sandbox != test.sandbox || len(l.Mounts) != test.mounts {
				t.Fatalf("launch %+v", l)
			}
			for rank, p := range l.Processes {
				if !slices.Equal(p.Args, test.args) || p.Dir != test.dir || !slices.Equal(p.CPUs, test.cpus[rank]) {
					t.Errorf("process %d: %q in %s on %v", rank, p.Args, p.Dir, p.CPUs)
				}
				if (p.Args[0] == "python") != (p.Fallback == "python3") {
					t.Errorf("process %d: %q falls back to %q", rank, p.Args, p.Fallback)
				}
			}
		})
	}
	// Jobs on GPUs may use all processors. The list of each rank begins where its GPU is among the machine's.
	g := gpus()
	g.Places[0].Node.Devices = []train.Device{{ID: "gpu:0"}, {ID: "gpu:1"}, {ID: "gpu:2"}}
	bounds.Processors = []int{0, 1, 2, 3, 4, 6}
	l := Compose(g, layout, bounds, "")
	if got := [][]int{l.Processes[0].CPUs, l.Processes[1].CPUs}; !cmp.Equal(got, [][]int{{4, 6, 0, 1, 2, 3}, {0, 1, 2, 3, 4, 6}}) {
		t.Errorf("processors %v", got)
	}
}

func TestComposeContainers(t *testing.T) {
	layout := installation.Layout{DataDir: "/var/lib/switchyard"}
	s := slots()
	s.Spec.Image, s.Mounted = "registry/image:1", true
	l := Compose(s, layout, Bounds{}, "")
	got := strings.Join(l.Processes[0].Args, " ")
	for _, want := range []string{
		"docker run --rm --name switchyard-job-a-3 --network host --init", "--volume /home/me/code:/custom", "--volume /home/me/saved:/snapshots",
		"--volume /home/me/datasets:/data", "--volume /run/job-api:/run/job-api", "--cpuset-cpus 3,5",
		"--cap-drop=ALL --security-opt no-new-privileges --pids-limit 32768 --env-file /var/lib/switchyard/jobs/job-a/attempts/3/environment-0", "registry/image:1 train --data /data/x",
	} {
		if !strings.Contains(got+" ", want+" ") {
			t.Errorf("command %q lacks %q", got, want)
		}
	}
	for _, secret := range []string{s.Capability, "attempt/token"} {
		if strings.Contains(got, secret) {
			t.Errorf("command %q shows the secret %q", got, secret)
		}
	}
	env := l.Processes[0].Env
	if attempt.Variable(env, "JOB_UUID") != "" || attempt.Variable(env, "MINE") != "" || attempt.Variable(env, "PATH") != "/usr/bin" || attempt.Variable(env, "SWITCHYARD_NATS") != "" || l.Sandbox != attempt.SandboxNone {
		t.Errorf("client environment %q", env)
	}
	if l.Runtime != engine.Docker || l.Container(0) != "switchyard-job-a-3" {
		t.Errorf("runtime %q, container %q", l.Runtime, l.Container(0))
	}
	if got, want := strings.Join(l.Beside.Args, " "), "docker exec --interactive --tty --env TERM switchyard-job-a-3"; got != want {
		t.Errorf("beside it runs %q, want %q", got, want)
	}
	s.Spec.Shell = &train.ShellSpec{Keep: true}
	if l := Compose(s, layout, Bounds{}, ""); l.Shell == nil || !l.Shell.Keep || !strings.Contains(strings.Join(l.Processes[0].Args, " "), " --interactive --tty ") {
		t.Errorf("a shell: %+v", l)
	}
}

func TestComposeContainersOnGPUs(t *testing.T) {
	layout := installation.Layout{DataDir: "/var/lib/switchyard"}
	g := gpus()
	g.Spec.Image, g.Spec.ScriptPath, g.Spec.Command = "image", "/custom/x.py", nil
	l := Compose(g, layout, Bounds{}, "")
	if len(l.Processes) != 2 || l.Runtime != engine.Docker {
		t.Fatalf("launch %+v", l)
	}
	got := strings.Join(l.Processes[1].Args, " ")
	for _, want := range []string{"--name switchyard-job-a-1-rank1", `--gpus "device=2,0"`, "image python /custom/x.py"} {
		if !strings.Contains(got, want) {
			t.Errorf("command %q lacks %q", got, want)
		}
	}
	if got := (Bounds{}).inContainer(g, 1)["CUDA_VISIBLE_DEVICES"]; got != "0,1" {
		t.Errorf("CUDA_VISIBLE_DEVICES %q: in a container GPUs are counted anew", got)
	}
	shared := g
	shared.Places = []launch.Place{g.Places[0]}
	shared.Places[0].Node.MPSDir, shared.Places[0].Devices = "/pipes", []train.Device{{ID: "gpu:2", Kind: train.KindGPU, Enforcement: train.EnforcedByMPS}}
	if got := strings.Join(Compose(shared, layout, Bounds{}, "").Processes[0].Args, " "); !strings.Contains(got, `--ipc host --volume /pipes:/pipes --gpus "device=2"`) {
		t.Errorf("command %q lacks what a client of the Multi-Process Service needs", got)
	}
	g.Places[0].Node.ContainerRuntime = "podman"
	got = strings.Join(Compose(g, layout, Bounds{}, "").Processes[0].Args, " ")
	if want := "--device nvidia.com/gpu=2 --device nvidia.com/gpu=0"; !strings.HasPrefix(got, "podman run") || !strings.Contains(got, want) {
		t.Errorf("command %q lacks %q", got, want)
	}
}

// Simulated GPUs are counted like real ones, but no program is given one.
func TestSimulatedGPUs(t *testing.T) {
	s := gpus()
	for i := range s.Places[0].Devices {
		s.Places[0].Devices[i].Simulated = true
	}
	env := s.Scheduler(0)
	for name, want := range map[string]string{"CUDA_VISIBLE_DEVICES": "", "PL_TORCH_DISTRIBUTED_BACKEND": "gloo", "NUM_GPUS": "2", "SWITCHYARD_DEVICES": "gpu:2,gpu:0"} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	s.Spec.Image, s.Places[0].Node.ContainerRuntime = "image", "docker"
	if got := strings.Join((Bounds{}).container(s, installation.Layout{}, 0).Args, " "); strings.Contains(got, "--gpus") || strings.Contains(got, "--cpuset-cpus") {
		t.Errorf("%s: want all processors and no GPU", got)
	}
}

// TestServersUseWhatWorkersLeave: on slots, the processes that serve use the processors that no worker of the job has.
func TestServersUseWhatWorkersLeave(t *testing.T) {
	s := slots()
	s.Spec.Strategy, s.Spec.ParameterServers, s.Places[0].Servers = train.StrategyParameterServer, &train.ServersSpec{Max: 2}, 2
	s.Ports = []int{4001, 4002, 4003, 4004}
	l := Compose(s, installation.Layout{DataDir: "/data"}, Bounds{Processors: []int{0, 3, 4, 5}}, "")
	if len(l.Processes) != 4 {
		t.Fatalf("%d processes, want a scheduler, 2 servers and a worker", len(l.Processes))
	}
	for rank, p := range l.Processes {
		want := []int{0, 4}
		if rank == 3 {
			want = []int{3, 5}
		}
		if !slices.Equal(p.CPUs, want) || p.Serves != (rank < 3) {
			t.Errorf("rank %d serves: %v, on %v, want %v", rank, p.Serves, p.CPUs, want)
		}
	}
	if why := l.Lacks(2); why != "" {
		t.Errorf("two processors for each worker: %s", why)
	}
}

// Workers without a bound have none together either; the scheduler of servers needs none.
func TestMemoryOfAllProcesses(t *testing.T) {
	two := gpus()
	two.Spec.MainMemoryMiB = 300
	if got := MemoryMiB(two); got != 600 {
		t.Errorf("two processes of 300 MiB: %d", got)
	}
	two.Spec.MainMemoryMiB = 0
	if got := MemoryMiB(two); got != 0 {
		t.Errorf("without a bound: %d", got)
	}
	served := slots()
	served.Spec.Strategy, served.Spec.MainMemoryMiB = train.StrategyParameterServer, 300
	served.Spec.ParameterServers = &train.ServersSpec{MemoryMiB: 100}
	served.Places[0].Servers = 2
	if got := MemoryMiB(served); got != 500 {
		t.Errorf("a worker and two servers: %d", got)
	}
}
