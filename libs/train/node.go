package train

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// NodeID names a machine; one token.
type NodeID string

// Answers reports whether the id is that of the machine with a name, which may be the whole name of a host: eiger-1 is
// eiger-1.maas.
func (n NodeID) Answers(name string) bool {
	host, _, _ := strings.Cut(name, ".")
	return string(n) == name || string(n) == host || string(n) == strings.ReplaceAll(name, ".", "-")
}

// DeviceID names a device on its node: "gpu:0", "cpu:3".
type DeviceID string

// Kind returns the kind of the device: the part of its id before the colon.
func (d DeviceID) Kind() DeviceKind {
	kind, _, _ := strings.Cut(string(d), ":")
	return DeviceKind(kind)
}

// Board returns the GPU of a device: the device itself, except for an instance of a partitioned GPU (gpu:0:1 belongs to
// gpu:0).
func (d DeviceID) Board() DeviceID {
	board, _, _ := strings.Cut(d.Index(), ":")
	return DeviceID(string(d.Kind()) + ":" + board)
}

// Index returns the index of the device: the part of its id after the colon.
func (d DeviceID) Index() string {
	_, index, _ := strings.Cut(string(d), ":")
	return index
}

// JoinDevices prints device ids as one word for environments and tables.
func JoinDevices(ids []DeviceID) string { return strings.Join(Words(ids), ",") }

// SameDevices reports whether a and b hold the same devices, in any order.
func SameDevices(a, b []DeviceID) bool {
	if len(a) != len(b) {
		return false
	}
	x, y := slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(x, y)
}

// DeviceKind distinguishes GPUs from CPU slots.
type DeviceKind string

// The kinds of device.
const (
	KindGPU DeviceKind = "gpu"
	KindCPU DeviceKind = "cpu"
)

// Device is what the planner allocates: whole, or by memory to jobs that share it.
type Device struct {
	ID    DeviceID   `json:"id"`
	Kind  DeviceKind `json:"kind"`
	Model string     `json:"model,omitempty"`
	UUID  string     `json:"uuid,omitempty"`
	// Driver is the version of its driver: measurements under another version may no longer hold.
	Driver string     `json:"driver,omitempty"`
	Memory unit.Bytes `json:"memory_bytes,omitempty"`
	// IdleWatts is its power without work, BusyWatts its highest power, which is its power limit; 0 if unknown.
	IdleWatts float64 `json:"idle_watts,omitempty"`
	BusyWatts float64 `json:"busy_watts,omitempty"`
	// Core is the processor that a CPU slot stands for.
	Core int `json:"core,omitempty"`
	// Simulated is set for a GPU that does not exist: its jobs run on processors.
	Simulated bool `json:"simulated,omitempty"`
	// Enforcement is what holds jobs that share the device to their parts.
	Enforcement Enforcement `json:"enforcement,omitempty"`
	// Resource is the extended resource under which a kubelet accounts for this one device, Units the number of its
	// units in the whole device.
	Resource string `json:"resource,omitempty"`
	Units    int    `json:"units,omitempty"`
	// Class is the DeviceClass by which pods claim the device (resource.k8s.io), which they then name by its UUID.
	Class string `json:"class,omitempty"`
	// HeldBy names what holds the device beside jobs, e.g. a pod of another namespace.
	HeldBy string `json:"held_by,omitempty"`
	// Pods are those that have memory of the device and belong to no job, as namespace/name (PodMemoryResource).
	Pods []string `json:"pods,omitempty"`
}

// Enforcement is what holds a job to its part of a device's memory.
type Enforcement string

// The levels, the weakest first.
const (
	// NotEnforced: use is not even measured. Such devices are not shared by memory.
	NotEnforced Enforcement = "none"
	// EnforcedByAdvice: the job knows its part, its use is measured, and a job that uses more leaves at its epoch's
	// end.
	EnforcedByAdvice Enforcement = "advisory"
	// EnforcedByMPS: in addition, NVIDIA's Multi-Process Service refuses the job more than its part.
	EnforcedByMPS Enforcement = "mps"
	// EnforcedByMIG: the device is an instance of a partitioned GPU, with memory and processors of its own, for one
	// job.
	EnforcedByMIG Enforcement = "mig"
	// GivenWhole: the cluster gives whole devices to pods, by a device plugin or a driver that is not Switchyard's.
	GivenWhole Enforcement = "whole"
)

// Weakest returns the level of a job that has all these devices; empty for no devices.
func Weakest(devices []Device) Enforcement {
	order := []Enforcement{NotEnforced, EnforcedByAdvice, EnforcedByMPS, EnforcedByMIG, GivenWhole}
	least := len(order)
	for i := range devices {
		least = min(least, max(slices.Index(order, devices[i].Enforcement), 0))
	}
	if least == len(order) {
		return ""
	}
	return order[least]
}

// SharingLabel marks, with the value "true", the nodes whose devices may be shared. If no node has it, all devices may
// be shared.
const SharingLabel = "gpushare"

// Backend is what starts processes on a node.
type Backend string

// The back ends.
const (
	BackendLocal      Backend = ""           // the executor of the machine itself
	BackendKubernetes Backend = "kubernetes" // pods
)

// The assumed power of a device with unknown power: that of a large accelerator, and of a core of a server.
const (
	typicalGPUWatts = 300
	typicalCPUWatts = 10
	// idlePart is the power without work as a fraction of the highest power.
	idlePart = 0.2
)

// Type is the same for devices that run the same job alike.
func (d *Device) Type() string { return cmp.Or(d.Model, string(d.Kind)) }

// BusyPower returns the highest power of the device.
func (d *Device) BusyPower() unit.Power {
	switch {
	case d.BusyWatts > 0:
		return unit.Watts(d.BusyWatts)
	case d.Kind == KindCPU:
		return unit.Watts(typicalCPUWatts)
	}
	return unit.Watts(typicalGPUWatts)
}

// Share returns the smallest part of the device with at least the given memory that can be accounted for. It returns 0
// for a device that cannot be shared: it has less memory, does not report it, is a part itself, or is given out whole.
func (d *Device) Share(memory unit.Bytes) unit.Bytes {
	switch {
	case memory <= 0 || memory > d.Memory || d.Enforcement == EnforcedByMIG || d.Enforcement == GivenWhole:
		return 0
	case d.Units <= 0:
		return memory
	}
	return unit.Bytes(int64(d.UnitsOf(memory)) * int64(d.Memory) / int64(d.Units))
}

// UnitsOf returns the number of units of its resource for the given memory of the device, rounded up; all units for 0,
// which means the whole device.
func (d *Device) UnitsOf(memory unit.Bytes) int {
	whole := max(d.Units, 1)
	if memory <= 0 || memory >= d.Memory {
		return whole
	}
	return int((int64(memory)*int64(whole) + int64(d.Memory) - 1) / int64(d.Memory))
}

// IdlePower returns the power of the device without work.
func (d *Device) IdlePower() unit.Power {
	if d.IdleWatts > 0 {
		return min(unit.Watts(d.IdleWatts), d.BusyPower())
	}
	return unit.Watts(idlePart * d.BusyPower().Watts())
}

// Owner is the data folder that a process of a node works in. Two processes with the name of one node and folders of
// their own would each undo what the other does.
type Owner struct {
	// ID is random, and kept in the folder.
	ID string `json:"id"`
	// Place is host:folder, for people.
	Place string `json:"place"`
}

// Node is a machine as its agent reports it.
type Node struct {
	ID NodeID `json:"id"`
	// Backend is what starts processes on the node.
	Backend Backend `json:"backend,omitempty"`
	// Machine is the machine whose executor starts them, if it presents itself as several nodes.
	Machine NodeID `json:"machine,omitempty"`
	// Owner is the data folder of its agent: an agent with another one stands by while this one announces the node.
	Owner Owner `json:"owner,omitzero"`
	// Version is that of its agent's program.
	Version string `json:"version,omitempty"`
	// Name is the node's name in Kubernetes, Labels are its labels there.
	Name    string            `json:"name,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	BootID  string            `json:"boot_id"`
	Cores   int               `json:"cores"`
	Memory  unit.Bytes        `json:"memory_bytes"`
	Devices []Device          `json:"devices"`
	// ContainerRuntime is docker, podman or empty.
	ContainerRuntime string `json:"container_runtime,omitempty"`
	// JobAPI is the host:port and JobAPISocket the Unix socket at which training code reaches the agent.
	JobAPI       string `json:"job_api"`
	JobAPISocket string `json:"job_api_socket,omitempty"`
	// MPSDir is where processes reach the daemon of NVIDIA's Multi-Process Service; empty if none runs.
	MPSDir string `json:"mps_dir,omitempty"`
	// Meters names the power meters of the node, e.g. nvml, rapl, modelled.
	Meters []string `json:"meters,omitempty"`
	// MeterTroubles says why meters that were found or asked for do not work, by name.
	MeterTroubles map[string]string `json:"meter_troubles,omitempty"`
	// DiskTrouble says how much room the disk of the agent's data folder has while it is so little that no job is started
	// there; otherwise it is empty.
	DiskTrouble string `json:"disk_trouble,omitempty"`
	// Probes are the addresses, as host:port, at which the agent answers network probes.
	Probes []string `json:"probe_addresses,omitempty"`
	// SeenAt is refreshed by the agent every few seconds, and when an attempt on the node has exited: an old time means
	// that the node is gone.
	SeenAt time.Time `json:"seen_at"`
	// ReportsWaiting counts the reports of training code that the agent holds until the bus takes them.
	ReportsWaiting int `json:"reports_waiting,omitempty"`
}

// Realm is what one executor serves: the nodes of Kubernetes, or those of one machine. A gang spans nodes of one realm
// only.
type Realm struct {
	Backend Backend
	// Machine is empty on Kubernetes.
	Machine NodeID
}

// Realm returns the realm of the node. A machine is a node itself, unless it presents itself as several.
func (n *Node) Realm() Realm {
	if n.Backend != BackendLocal {
		return Realm{Backend: n.Backend}
	}
	return Realm{Machine: cmp.Or(n.Machine, n.ID)}
}

// Has reports whether the node has all of these labels.
func (n *Node) Has(labels map[string]string) bool {
	for key, want := range labels {
		if value, found := n.Labels[key]; !found || value != want {
			return false
		}
	}
	return true
}

// IsLabel reports whether a Kubernetes node can have such a label: a key, with or without a domain before a slash, and
// a value that may be empty.
func IsLabel(key, value string) bool {
	const longestDomain = 253
	domain, name, split := strings.Cut(key, "/")
	if !split {
		domain, name = "", key
	}
	if split && (len(domain) > longestDomain || !labelWord(domain)) {
		return false
	}
	return len(name) <= longestLabel && labelWord(name) && len(value) <= longestLabel && (value == "" || labelWord(value))
}

// labelWord reports whether s consists of letters, digits, '-', '_' and '.', with a letter or digit at both ends.
func labelWord(s string) bool {
	plain := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for i := range len(s) {
		if !plain(s[i]) && !strings.ContainsRune("-_.", rune(s[i])) {
			return false
		}
	}
	return s != "" && plain(s[0]) && plain(s[len(s)-1])
}

// Merged returns the labels of both; those of more go over those of labels.
func Merged(labels, more map[string]string) map[string]string {
	if len(labels)+len(more) == 0 {
		return nil
	}
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, more)
	return all
}

// JoinLabels prints labels in the order of their keys: a=1,b=2.
func JoinLabels(labels map[string]string) string {
	words := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, ",")
}

// NodeStale is the age of SeenAt at which a person should take a node for gone: agents write every few seconds.
const NodeStale = 20 * time.Second

// NodeDevice is a device of a node.
type NodeDevice struct {
	Node   NodeID
	Device DeviceID
}

// NodeDevices returns the devices of all places.
func NodeDevices(places []Part) []NodeDevice {
	var list []NodeDevice
	for _, p := range places {
		for _, d := range p.Devices {
			list = append(list, NodeDevice{p.Node, d})
		}
	}
	return list
}

// Occupied counts who is on a device. Wholes counts those that have it for themselves, Sharers those that have parts of
// its memory, and Parts is that memory.
type Occupied struct {
	Wholes, Sharers int
	Parts           unit.Bytes
}

// Occupancy is what attempts, and pods of no job, hold of each device. A plan says who is to have a device; this says
// who has it now.
type Occupancy map[NodeDevice]Occupied

// Take adds what an attempt holds in all places.
func (o Occupancy) Take(places []Part) { o.count(places, 1) }

// Release undoes a Take.
func (o Occupancy) Release(places []Part) { o.count(places, -1) }

func (o Occupancy) count(places []Part, times int) {
	for _, p := range places {
		for _, d := range p.Devices {
			at := NodeDevice{p.Node, d}
			of := o[at]
			if p.Memory > 0 {
				of.Sharers, of.Parts = of.Sharers+times, of.Parts+p.Memory*unit.Bytes(times)
			} else {
				of.Wholes += times
			}
			if o[at] = of; of == (Occupied{}) {
				delete(o, at)
			}
		}
	}
}

// Leaves says whether a device with the given memory has room for a part of it. A part of 0 is the whole device.
func (o Occupied) Leaves(part, memory unit.Bytes) bool {
	if part == 0 {
		return o == Occupied{}
	}
	return o.Wholes == 0 && part <= memory-o.Parts
}

// Plus adds up what two occupancies say of a device.
func (o Occupied) Plus(other Occupied) Occupied {
	return Occupied{o.Wholes + other.Wholes, o.Sharers + other.Sharers, o.Parts + other.Parts}
}
