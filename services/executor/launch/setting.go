// Package launch holds what the back ends of the executor share: what an attempt is started with (its processes,
// their ranks and their environment) and how its status is described. It starts nothing and decides nothing.
package launch

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Setting is everything the environment and the command of an attempt are made from.
type Setting struct {
	Job  train.JobID
	Spec train.Spec
	// Secrets are the values of the secret variables, which must not be logged. They go over what a trial's setting or
	// the spec says of the same names.
	Secrets map[string]string
	Attempt train.Attempt
	// Signed is what admission has signed of the job's record.
	Signed train.Job
	// Places are the attempt's places in its order, with the devices as their nodes describe them.
	Places     []Place
	Capability string
	Token      string
	// TokenFile is a file with the Token that the job can read; empty without one.
	TokenFile string
	// Restarted is set if the attempt resumes from saved state.
	Restarted      bool
	HeartbeatSteps int
	// Ports and Addresses say where each process is reached, in the order of Processes; the first is the rendezvous.
	// Without addresses all processes are on this machine.
	Ports     []int
	Addresses []string
	// Unreported is a folder in which the job writes down what it reports until that has arrived; empty without one.
	Unreported string
	// HorovodPort is where Horovod's processes meet on this machine, and HostFile names its slots to mpirun; 0 and empty
	// if nobody provides them.
	HorovodPort int
	HostFile    string
	// The folders are real paths; Datasets may be empty. Mounted is set if the job sees them as /custom, /snapshots
	// and /data.
	Custom, Snapshots, Datasets, Work string
	// Staged is the node's copy of the data at the address that the job names; it becomes Datasets.
	Staged  string
	Mounted bool
	// Base is the executor's own environment, as NAME=value. The client of a container runtime inherits it. A job on
	// the machine itself inherits only what describes the machine and its user, and what Passed names (NAME or
	// PREFIX*). PythonPath is added to PYTHONPATH.
	Base, Passed []string
	PythonPath   string
}

// Place is a node with the devices that an attempt holds there, in the attempt's order.
type Place struct {
	Node    train.Node
	Devices []train.Device
	// Memory is the attempt's share of each device; 0 means the whole device.
	Memory unit.Bytes
	// Servers is the number of parameter servers on the node.
	Servers int
}

// The paths at which a job sees its folders.
const (
	CustomTarget    = "/custom"
	SnapshotsTarget = "/snapshots"
	DataTarget      = "/data"
)

// NewSecret returns 32 random bytes as 64 hexadecimal digits.
func NewSecret() (string, error) {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make a secret: %w", err)
	}
	return hex.EncodeToString(raw), nil
}

// Marker returns a NAME=value that only the processes of an attempt know, and that no other attempt has, not even of
// another installation on the machine.
func Marker(job train.JobID, number int, token string) string {
	return train.MarkVariable + "=" + train.Mark(job, number, token)
}

// Home returns the node whose agent serves the job API to all processes of the attempt.
func (s Setting) Home() train.Node {
	if len(s.Places) == 0 {
		return train.Node{}
	}
	return s.Places[0].Node
}

// Tuned returns the spec with the system parameters that an attempt is started with.
func Tuned(spec train.Spec, a train.Attempt) train.Spec {
	spec.BatchSize = LocalBatch(spec, a)
	words := a.Setting.Words()
	if len(words) == 0 {
		return spec
	}
	spec.ScriptPath = train.Filled(spec.ScriptPath, words)
	spec.Command, spec.Env = slices.Clone(spec.Command), maps.Clone(spec.Env)
	for i, word := range spec.Command {
		spec.Command[i] = train.Filled(word, words)
	}
	for name, value := range spec.Env {
		spec.Env[name] = train.Filled(value, words)
	}
	return spec
}

// LocalBatch returns the number of samples per device and pass that an attempt is started with.
func LocalBatch(spec train.Spec, a train.Attempt) int {
	if a.Setting.BatchDevices > 0 {
		return a.Setting.BatchOn(a.DeviceCount(), spec.BatchSize)
	}
	return cmp.Or(a.Batch.LocalBatch, spec.BatchSize)
}

// Cores returns how many processors a process may use; 0 means all that come with its devices.
func (s Setting) Cores(p Process) int {
	switch p.Role {
	case RoleServer:
		return s.serverNeeds().Cores
	case RoleScheduler:
		return 0
	case RoleWorker:
	}
	return int(cmp.Or(s.Attempt.Setting.Own(train.SettingCores), float64(s.Spec.Cores)))
}

// MemoryMiB returns how much main memory a process may use; 0 means no limit.
func (s Setting) MemoryMiB(p Process) int64 {
	switch p.Role {
	case RoleServer:
		return s.serverNeeds().MemoryMiB
	case RoleScheduler:
		return 0
	case RoleWorker:
	}
	return int64(cmp.Or(s.Attempt.Setting.Own(train.SettingMemoryMiB), float64(s.Spec.MainMemoryMiB)))
}

// serverNeeds returns what each parameter server was planned with.
func (s Setting) serverNeeds() train.ServersSpec {
	if needs := s.Spec.WithDefaults().ParameterServers; needs != nil {
		return *needs
	}
	return train.ServersSpec{}
}

// Devices returns the devices of all places.
func (s Setting) Devices() []train.Device {
	var all []train.Device
	for _, p := range s.Places {
		all = append(all, p.Devices...)
	}
	return all
}

// OnGPUs reports whether the job has GPUs.
func (s Setting) OnGPUs() bool {
	all := s.Devices()
	return len(all) > 0 && all[0].Kind == train.KindGPU
}

// Scheduler returns the variables that the scheduler sets for a process. Users cannot override them.
func (s Setting) Scheduler(rank int) map[string]string {
	number := strconv.Itoa
	all := s.Processes()
	p := all[rank]
	place, home := s.Places[p.Place], s.Home()
	env := map[string]string{
		"JOB_UUID": s.Capability, "JOB_RESTARTED": "FALSE", "EPOCHS_DONE": number(s.Attempt.StartedEpochs),
		"HEARTBEAT_FREQ": number(s.HeartbeatSteps), "NODELIST": s.nodeList(), "NUM_GPUS": number(len(place.Devices)), "NUM_NODES": number(len(s.Places)),
		"NODE_RANK": number(p.Place), "WORLD_SIZE": number(workers(all)), "MASTER_ADDR": s.address(0), "MASTER_PORT": number(s.port(0)),
		"RESERVED_MEM": strconv.FormatInt(s.reservedMiB(place), 10), "PL_TORCH_DISTRIBUTED_BACKEND": s.collectiveBackend(),
		"SWITCHYARD_JOB": string(s.Job), "SWITCHYARD_ATTEMPT": number(s.Attempt.Number), "SWITCHYARD_DEVICES": joinIDs(place.Devices),
		"SWITCHYARD_JOB_API":     fmt.Sprintf("http://%s/attempt/%s", home.JobAPI, s.Token),
		"SWITCHYARD_JOB_MANAGER": home.JobAPI, "SWITCHYARD_JOB_SOCKET": home.JobAPISocket,
		"CUDA_VISIBLE_DEVICES": onMachine(place.GPUs()), "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
	}
	for name, declared := range map[string]int{
		"EPOCHS_TO_BE_DONE": s.Spec.MaxEpochs, "SWITCHYARD_MAX_STEPS": s.Spec.MaxSteps, "BATCH_SIZE": s.Spec.BatchSize, "TRAINING_SET_SIZE": s.Spec.TrainingSetSize,
	} {
		if declared > 0 {
			env[name] = number(declared)
		}
	}
	if m := s.Spec.ArrayMember; m != nil {
		env["SWITCHYARD_ARRAY"], env["SWITCHYARD_ARRAY_INDEX"], env["SWITCHYARD_ARRAY_COUNT"] = string(m.Array), number(m.Index), number(m.Count)
	}
	if p.Serves() {
		env["CUDA_VISIBLE_DEVICES"] = ""
	}
	env[train.MarkVariable] = train.Mark(s.Job, s.Attempt.Number, s.Token)
	for name, value := range s.Attempt.Setting.Values {
		if name == train.SettingDevices { // the plan may have given it another number
			value = float64(s.Attempt.DeviceCount())
		}
		env[train.ParameterVariable(name)] = strconv.FormatFloat(value, 'f', -1, 64)
	}
	if s.Restarted {
		env["JOB_RESTARTED"] = "TRUE"
	}
	if s.Staged != "" {
		env["DATA_URL"], env["DATA_DIR"] = s.Spec.DataURL, s.Staged
		if s.Mounted {
			env["DATA_DIR"] = DataTarget
		}
	}
	if s.Unreported != "" {
		env["SWITCHYARD_UNREPORTED"] = s.Unreported
	}
	place.addMPS(env)
	s.addRank(env, all, rank)
	s.addBatch(env, all, rank)
	if !s.Mounted {
		for name, folder := range map[string]string{
			"SWITCHYARD_CUSTOM_DIR": s.Custom, "SWITCHYARD_SNAPSHOTS_DIR": s.Snapshots, "SWITCHYARD_DATASETS_DIR": s.Datasets,
		} {
			if folder != "" {
				env[name] = folder
			}
		}
	}
	return env
}

func (s Setting) nodeList() string {
	joinNames := make([]string, len(s.Places))
	for i, p := range s.Places {
		joinNames[i] = string(p.Node.ID)
	}
	return strings.Join(joinNames, ",")
}

func joinIDs(devices []train.Device) string {
	ids := make([]train.DeviceID, len(devices))
	for i, d := range devices {
		ids[i] = d.ID
	}
	return train.JoinDevices(ids)
}

// reservedMiB returns the memory per device that the job may count on: its share of a shared device, else what it
// asked for, else the whole device.
func (s Setting) reservedMiB(p Place) int64 {
	if p.Memory > 0 {
		return int64(p.Memory / unit.MiB)
	}
	if s.Spec.EstimatedMemoryMiB > 0 || len(p.Devices) == 0 {
		return s.Spec.EstimatedMemoryMiB
	}
	return p.Devices[0].Memory.MiB()
}

// collectiveBackend returns nccl, as the guide of the Python library promises. NCCL cannot work unless every process
// has a real GPU, so otherwise it returns gloo.
func (s Setting) collectiveBackend() string {
	without := func(d train.Device) bool { return d.Kind != train.KindGPU || d.Simulated }
	if all := s.Devices(); len(all) == 0 || slices.ContainsFunc(all, without) {
		return "gloo"
	}
	return "nccl"
}
