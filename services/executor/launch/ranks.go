package launch

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Role is what a process does in its job.
type Role string

// The roles. The servers and workers of a parameter-server job meet at its scheduler.
const (
	RoleWorker    Role = "worker"
	RoleServer    Role = "ps"
	RoleScheduler Role = "scheduler"
)

// Process is one process of an attempt.
type Process struct {
	Role Role
	// Index counts the processes of the role. Place is the index in Setting.Places.
	Index int
	Place int
	// Local is the rank among the Locals processes of one place.
	Local, Locals int
	// Devices are the devices that the process uses; a server uses none.
	Devices []train.Device
}

// Serves reports whether the process only serves the workers: once they have ended, it is ended.
func (p Process) Serves() bool { return p.Role != RoleWorker }

// Processes returns the processes of the attempt. The others meet at the first one. Workers are consecutive, in the
// order of the places.
func (s Setting) Processes() []Process {
	var all []Process
	if s.servers() > 0 {
		all = append(all, Process{Role: RoleScheduler, Locals: 1})
	}
	for place, p := range s.Places {
		for range p.Servers {
			all = append(all, Process{Role: RoleServer, Index: len(all) - 1, Place: place, Locals: 1})
		}
	}
	index := 0
	for place, p := range s.Places {
		locals := 1
		if s.Spec.Launch == train.LaunchPerDevice {
			locals = max(len(p.Devices), 1)
		}
		for local := range locals {
			w := Process{Role: RoleWorker, Index: index, Place: place, Local: local, Locals: locals, Devices: p.Devices}
			if locals > 1 {
				w.Devices = p.Devices[local : local+1]
			}
			all = append(all, w)
			index++
		}
	}
	return all
}

// servers returns the number of parameter servers.
func (s Setting) servers() int {
	n := 0
	for _, p := range s.Places {
		n += p.Servers
	}
	return n
}

func workers(all []Process) int {
	n := 0
	for _, p := range all {
		if p.Role == RoleWorker {
			n++
		}
	}
	return n
}

// The variables that tell several processes of a job apart.
const (
	Rank         = "RANK"
	RoleVariable = "SWITCHYARD_ROLE"
)

// addRank adds the variables that tell the processes of a job apart.
func (s Setting) addRank(env map[string]string, all []Process, rank int) {
	p, number := all[rank], strconv.Itoa
	if p.Role == RoleWorker && (s.Spec.Launch == train.LaunchPerDevice || len(s.Places) > 1) {
		env[Rank] = number(p.Index)
	}
	if p.Role == RoleWorker && s.Spec.Launch == train.LaunchPerDevice {
		env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"] = number(p.Local), number(p.Locals)
		s.addHorovod(env, all, rank)
	}
	if p.Role == RoleWorker && s.Spec.Launch != train.LaunchPerDevice {
		s.addLaunchers(env, p)
	}
	env["TF_CONFIG"] = s.tfConfig(all, rank)
	servers := s.servers()
	if servers == 0 {
		return
	}
	role := string(p.Role)
	if p.Role == RoleServer {
		role = "server" // MXNet's word for what TensorFlow calls ps
	}
	env[RoleVariable] = string(p.Role)
	env["DMLC_ROLE"], env["DMLC_PS_ROOT_URI"], env["DMLC_PS_ROOT_PORT"] = role, s.address(0), number(s.port(0))
	env["DMLC_NUM_SERVER"], env["DMLC_NUM_WORKER"] = number(servers), number(workers(all))
}

// addLaunchers adds the variables that torchrun and mpirun read in place of their options. `torchrun train.py` then
// starts a process for each device of each node, at a port that no other job has, and `mpirun train` starts one for
// each device of its node.
func (s Setting) addLaunchers(env map[string]string, p Process) {
	s.suggest(env, map[string]string{
		"PET_NNODES": strconv.Itoa(len(s.Places)), "PET_NODE_RANK": strconv.Itoa(p.Place), "PET_NPROC_PER_NODE": strconv.Itoa(max(len(p.Devices), 1)),
		"PET_MASTER_ADDR": s.address(0), "PET_MASTER_PORT": strconv.Itoa(s.port(0)),
	})
	if s.HostFile != "" { // -np of another number stays possible
		s.suggest(env, map[string]string{
			"OMPI_MCA_orte_default_hostfile": s.HostFile, "PRTE_MCA_prte_default_hostfile": s.HostFile, "OMPI_MCA_rmaps_base_oversubscribe": "1",
		})
	}
}

// HostFileText is the content of HostFile: the slots that mpirun fills on its own machine.
func (s Setting) HostFileText() string {
	return fmt.Sprintf("localhost slots=%d\n", max(len(s.Devices()), 1))
}

// addHorovod adds what horovodrun gives its processes. Without a rendezvous, hvd.init() would take each process for the
// only one, so the variables are left out if the back end serves none.
func (s Setting) addHorovod(env map[string]string, all []Process, rank int) {
	if s.HorovodPort == 0 {
		return
	}
	p, number := all[rank], strconv.Itoa
	s.suggest(env, map[string]string{
		"HOROVOD_RANK": number(p.Index), "HOROVOD_SIZE": number(workers(all)), "HOROVOD_LOCAL_RANK": number(p.Local), "HOROVOD_LOCAL_SIZE": number(p.Locals),
		"HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1", "HOROVOD_HOSTNAME": "localhost", "HOROVOD_GLOO_IFACE": "lo",
		"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
		"HOROVOD_GLOO_RENDEZVOUS_ADDR": s.address(0), "HOROVOD_GLOO_RENDEZVOUS_PORT": number(s.HorovodPort),
	})
}

// suggest adds variables that the job may set itself.
func (s Setting) suggest(env, values map[string]string) {
	for name, value := range values {
		if _, own := s.Spec.Env[name]; !own {
			env[name] = value
		}
	}
}

// addBatch adds the variables by which a worker knows its share of an optimizer step: how many devices all processes
// have, how many of them come before its own, and how the steps are formed.
func (s Setting) addBatch(env map[string]string, all []Process, rank int) {
	if all[rank].Role != RoleWorker {
		return
	}
	number, before := strconv.Itoa, 0
	for _, p := range all[:rank] {
		before += len(p.Devices)
	}
	b, devices := s.Attempt.Batch, len(s.Devices())
	env["SWITCHYARD_DEVICE_RANK"], env["SWITCHYARD_DEVICE_COUNT"] = number(before), number(devices)
	if b.LocalBatch == 0 {
		return
	}
	env["SWITCHYARD_GLOBAL_BATCH"], env["SWITCHYARD_BASE_BATCH"] = number(b.Global(devices)), number(s.Spec.BaseBatch())
	env["SWITCHYARD_ACCUMULATION"] = number(b.Passes())
	env["SWITCHYARD_BATCH_GENERATION"] = strconv.FormatUint(s.Attempt.BatchGeneration, 10)
	if a := s.Spec.AdaptiveBatch; a != nil {
		env["SWITCHYARD_LEARNING_RATE"] = string(a.LearningRate)
	}
}

func (s Setting) port(i int) int {
	if i < len(s.Ports) {
		return s.Ports[i]
	}
	return 0
}

func (s Setting) address(i int) string {
	if i < len(s.Addresses) {
		return s.Addresses[i]
	}
	return "127.0.0.1"
}

// tfConfig describes the processes to TensorFlow. MXNet's scheduler is not part of a TensorFlow cluster.
func (s Setting) tfConfig(all []Process, rank int) string {
	cluster := map[Role][]string{}
	for i, p := range all {
		if p.Role != RoleScheduler {
			cluster[p.Role] = append(cluster[p.Role], fmt.Sprintf("%s:%d", s.address(i), s.port(i)))
		}
	}
	type task struct {
		Type  Role `json:"type"`
		Index int  `json:"index"`
	}
	data, err := json.Marshal(struct {
		Cluster map[Role][]string `json:"cluster"`
		Task    task              `json:"task"`
	}{cluster, task{all[rank].Role, all[rank].Index}})
	if err != nil || all[rank].Role == RoleScheduler {
		return "" // strings and numbers always encode
	}
	return string(data)
}
