package local

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Setting is all that the environment and the command of an attempt are made from.
type Setting struct {
	Job     train.JobID
	Spec    train.Spec
	Attempt train.Attempt
	Node    train.Node
	// Devices are those of the attempt, in its order, as the node describes them.
	Devices    []train.Device
	Capability string
	Token      string
	// Restarted says that there is a state to go on from.
	Restarted      bool
	HeartbeatSteps int
	// Ports are free ports, one for each process; the first is the rendezvous.
	Ports []int
	// Folders are the real ones; Datasets may be empty. Mounted says that the job sees them as /custom, /snapshots and /data.
	Custom, Snapshots, Datasets, Work string
	Mounted                           bool
	// Base is what a job on the machine itself inherits, as NAME=value. PythonPath is added to PYTHONPATH.
	Base       []string
	PythonPath string
}

// The names under which a job sees its folders.
const (
	CustomTarget    = "/custom"
	SnapshotsTarget = "/snapshots"
	DataTarget      = "/data"
)

// ranks is the number of processes.
func (s Setting) ranks() int {
	if s.Spec.Launch == train.LaunchPerDevice {
		return max(len(s.Devices), 1)
	}
	return 1
}

// Marker is NAME=value, unique to the attempt, also among several data folders on one machine.
func Marker(a train.Attempt) string {
	return train.MarkVariable + "=" + a.Mark()
}

// Scheduler gives the variables that the scheduler sets for the process of a rank. The user's cannot override them.
func (s Setting) Scheduler(rank int) map[string]string {
	number := strconv.Itoa
	env := map[string]string{
		"JOB_UUID": s.Capability, "JOB_RESTARTED": "FALSE", "EPOCHS_DONE": number(s.Attempt.StartedEpochs),
		"EPOCHS_TO_BE_DONE": number(s.Spec.MaxEpochs), "BATCH_SIZE": number(s.Spec.BatchSize), "TRAINING_SET_SIZE": number(s.Spec.TrainingSetSize),
		"HEARTBEAT_FREQ": number(s.HeartbeatSteps), "NODELIST": string(s.Attempt.Node), "NUM_GPUS": number(len(s.Devices)), "NUM_NODES": "1",
		"NODE_RANK": "0", "WORLD_SIZE": number(s.ranks()), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": number(s.port(0)), "TF_CONFIG": s.tfConfig(rank),
		"RESERVED_MEM": strconv.FormatInt(s.reservedMiB(), 10), "PL_TORCH_DISTRIBUTED_BACKEND": s.collectives(),
		"SWITCHYARD_JOB": string(s.Job), "SWITCHYARD_ATTEMPT": number(s.Attempt.Number), "SWITCHYARD_DEVICES": train.JoinDevices(s.Attempt.Devices),
		"SWITCHYARD_JOB_API":     fmt.Sprintf("http://%s/attempt/%s", s.Node.JobAPI, s.Token),
		"SWITCHYARD_JOB_MANAGER": s.Node.JobAPI, "SWITCHYARD_JOB_SOCKET": s.Node.JobAPISocket,
		"CUDA_VISIBLE_DEVICES": s.gpus(), "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
	}
	name, value, _ := strings.Cut(Marker(s.Attempt), "=")
	env[name] = value
	if s.Restarted {
		env["JOB_RESTARTED"] = "TRUE"
	}
	if s.Spec.Launch == train.LaunchPerDevice {
		env["RANK"], env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"] = number(rank), number(rank), number(s.ranks())
	}
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

func (s Setting) port(i int) int {
	if i < len(s.Ports) {
		return s.Ports[i]
	}
	return 0
}

// tfConfig describes the processes to TensorFlow, one worker each.
func (s Setting) tfConfig(rank int) string {
	workers := make([]string, s.ranks())
	for i := range workers {
		workers[i] = fmt.Sprintf("127.0.0.1:%d", s.port(i))
	}
	type task struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	data, err := json.Marshal(struct {
		Cluster map[string][]string `json:"cluster"`
		Task    task                `json:"task"`
	}{map[string][]string{"worker": workers}, task{"worker", rank}})
	if err != nil {
		return "" // strings and a number always encode
	}
	return string(data)
}

// reservedMiB is the memory that the job may count on, per device: what it asked for, else all of the device.
func (s Setting) reservedMiB() int64 {
	if s.Spec.EstimatedMemoryMiB > 0 || len(s.Devices) == 0 {
		return s.Spec.EstimatedMemoryMiB
	}
	return s.Devices[0].Memory.MiB()
}

// collectives is nccl as the library's guide promises, but where there is no GPU it could not work.
func (s Setting) collectives() string {
	if s.onGPUs() && !s.Devices[0].Simulated {
		return "nccl"
	}
	return "gloo"
}

func (s Setting) onGPUs() bool { return len(s.Devices) > 0 && s.Devices[0].Kind == train.KindGPU }

// gpus lists the GPUs that the job may see: none for a job on processor slots, and none that is only simulated.
func (s Setting) gpus() string {
	var indices []string
	for _, d := range s.Devices {
		if d.Kind == train.KindGPU && !d.Simulated {
			indices = append(indices, d.ID.Index())
		}
	}
	return strings.Join(indices, ",")
}

// cpus are the processors of a rank: the slots of the job, or for one process per device its own. A job on GPUs shares all of them.
func (s Setting) cpus(rank int) []int {
	if s.onGPUs() {
		return nil
	}
	if s.Spec.Launch == train.LaunchPerDevice && rank < len(s.Devices) {
		return []int{s.Devices[rank].Core}
	}
	var cores []int
	for _, d := range s.Devices {
		cores = append(cores, d.Core)
	}
	slices.Sort(cores)
	return slices.Compact(cores)
}

// Environment is the whole environment of a rank on the machine itself: what is inherited, then the user's, then the scheduler's.
func (s Setting) Environment(rank int) []string {
	env := map[string]string{"PYTHONUNBUFFERED": "1"}
	for _, pair := range s.Base {
		name, value, found := strings.Cut(pair, "=")
		if found && name != "" && !strings.HasPrefix(name, "SWITCHYARD_") {
			env[name] = value
		}
	}
	maps.Copy(env, s.Spec.Env)
	if s.PythonPath != "" {
		env["PYTHONPATH"] = strings.TrimPrefix(env["PYTHONPATH"]+":"+s.PythonPath, ":")
	}
	maps.Copy(env, s.Scheduler(rank))
	return pairs(env)
}

func pairs(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
