package settings

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// NodeAgent configures what a node offers and measures.
type NodeAgent struct {
	// RunAs is the setting of the executor.
	RunAs        *string
	DeviceKind   string
	CPUSlots     int
	SimGPUs      int
	SimGPUModel  string
	SimGPUMemory int
	SimGPUWatts  float64
	Labels       map[string]string
	Machine      string
	JobAPI       string
	MPSDir       string
	MPSDaemon    bool
	MPSLogDir    string
	Kubelet      Kubelet
	Meters       Meters
	Probes       Probes
}

// Kubelet configures the agent of a node of Kubernetes.
type Kubelet struct {
	Node            string
	NodeLabels      string
	Namespaces      []string
	PodLogs         string
	PodLogLimit     int
	Root            string
	DevicePluginDir string
	GPUResource     string
	GPUClass        string
	PlainPods       bool
	KeyURL          string
	KeyToken        string
}

// Meters configures how energy is measured. Maps are keyed by the names of nodes, so that all nodes can have the same
// file; a node that a map does not name has no such meter.
type Meters struct {
	Interval        time.Duration
	ModelIdleWatts  float64
	ModelCoreWatts  float64
	RAPLRoot        string
	PerfEvents      string
	PDUURL          string
	PDUOutlets      map[string]string
	PDUInterval     time.Duration
	PCMLogs         map[string]string
	RedfishURLs     map[string]string
	RedfishUser     string
	RedfishPassword string
	RedfishInsecure bool
	RedfishInterval time.Duration
}

// Probes configures the probes of the network that a node sends and answers.
type Probes struct {
	Listen        []string
	Rate          float64
	Bytes         int
	BudgetPackets int
	BudgetBytes   int
}

// The values of NodeAgent.DeviceKind.
const (
	DevicesAuto = "auto"
	DevicesGPU  = "gpu"
	DevicesCPU  = "cpu"
)

// The values of Meters.PerfEvents.
const (
	PerfAuto = "auto"
	PerfOff  = "off"
)

// AnyLocalPort is the default address of the job API.
const AnyLocalPort = "127.0.0.1:0"

// Declare declares the section nodeagent.
func (c *NodeAgent) Declare(set *config.Set) {
	s := set.Section(NodeAgentSection, "The node agent offers the devices of a machine, measures its energy and answers training code.")
	const mostSlots, mostGPUs, mostGiB, mostWatts = 4096, 64, 1024, 10_000
	s.String(&c.DeviceKind, "device-kind", DevicesAuto, "what to offer as devices: gpu, cpu, or auto (GPUs if the node has some, else CPU slots)").Flag().
		OneOf(DevicesAuto, DevicesGPU, DevicesCPU)
	s.Int(&c.CPUSlots, "cpu-slots", 0, "number of CPU slots to offer (0: one per core)").Flag().Between(0, mostSlots)
	s.Int(&c.SimGPUs, "sim-gpus", 0, "simulated GPUs to offer instead of real ones; jobs on them run on processors").Flag().Between(0, mostGPUs)
	s.String(&c.SimGPUModel, "sim-gpu-model", "simulated", "model of a simulated GPU, as NVML would name it; several models, with commas, take turns")
	s.Int(&c.SimGPUMemory, "sim-gpu-memory", 16, "memory of a simulated GPU, in GiB").Between(1, mostGiB)
	s.Float(&c.SimGPUWatts, "sim-gpu-watts", 0, "assumed power of a simulated GPU in use, up to its power limit (0: none)").Between(0, mostWatts)
	s.TextMap(&c.Labels, "label", "labels of the node, for node_labels of jobs; as a flag NAME=VALUE (repeatable); on Kubernetes the node's own labels hold").
		As("labels").Flag().Check(func() error {
		for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
			if !train.IsLabel(key, c.Labels[key]) {
				return fmt.Errorf("%s=%s: want letters, digits, '-', '_' and '.'", key, c.Labels[key])
			}
		}
		return nil
	})
	s.String(&c.Machine, "machine", "", "id of the node whose executor also starts the jobs of this one: one machine can present itself as several nodes").
		Check(func() error {
			if _, err := train.ParseJobID(c.Machine); c.Machine != "" && err != nil {
				return errors.New("want letters, digits, '-' or '_'")
			}
			return nil
		})
	s.String(&c.JobAPI, "job-api", AnyLocalPort, "address of the job API: loopback, or the node's own if jobs are pods (port 0: a free one, kept over restarts)").Flag().NoVariable()
	s.String(&c.MPSDir, "mps-pipe-directory", "", "folder of the pipes of NVIDIA's MPS daemon").
		Shown("CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps").Check(func() error { return absoluteOrNone(c.MPSDir) })
	s.Bool(&c.MPSDaemon, "mps-daemon", false, "start NVIDIA's MPS daemon, start it again if it ends, and stop it with the agent")
	s.String(&c.MPSLogDir, "mps-log-directory", "", "folder of the logs of that daemon").
		Shown("nodeagent/mps-log in the data folder").Check(func() error { return absoluteOrNone(c.MPSLogDir) })
	c.Meters.declare(s)
	c.Probes.declare(s)
	c.Kubelet.declare(s)
}

func (c *Meters) declare(s *config.Section) {
	const mostWatts = 100_000
	least, most := 0.05, time.Minute.Seconds()
	s.Duration(&c.Interval, "meter-interval", time.Second, "how often energy is measured").Between(least, most)
	s.Float(&c.ModelIdleWatts, "model-idle-watts", 10, "assumed power of the idle machine, if it cannot be measured").Between(0, mostWatts)
	s.Float(&c.ModelCoreWatts, "model-core-watts", 6, "assumed power of each busy core, if it cannot be measured").Between(0, mostWatts)
	s.String(&c.RAPLRoot, "rapl-root", "/sys/class/powercap", "folder of Linux's energy counters of processors")
	s.String(&c.PerfEvents, "perf-events", PerfAuto, "count hardware events, else software events, while jobs run: auto (if allowed) or off").
		OneOf(PerfAuto, PerfOff)
	s.String(&c.PDUURL, "pdu-url", "", "address of a PDU whose outlets feed nodes, for example http://pdu-address").Check(func() error {
		if c.PDUURL == "" {
			return nil
		}
		return webURL(c.PDUURL)
	}).Secret()
	outlets := regexp.MustCompile(`^[0-9]+( *\+ *[0-9]+)*$`)
	s.TextMap(&c.PDUOutlets, "pdu-outlets", "outlets of the PDU, from 0 on, by node; several as in 3+4").Check(func() error {
		for _, node := range slices.Sorted(maps.Keys(c.PDUOutlets)) {
			if !outlets.MatchString(c.PDUOutlets[node]) {
				return fmt.Errorf("%s: want the numbers of outlets, as in 3+4", node)
			}
		}
		return nil
	})
	s.Duration(&c.PDUInterval, "pdu-interval", time.Second, "how often the PDU is asked").Between(least, most)
	s.TextMap(&c.PCMLogs, "pcm-log", "log that `pcm.x /csv` writes, by node: for the energy of processors if RAPL cannot be read").As("pcm_logs")
	s.TextMap(&c.RedfishURLs, "redfish-url", "Redfish service, or one chassis of it, by node: for the power of the whole node").As("redfish_urls").Check(func() error {
		for _, node := range slices.Sorted(maps.Keys(c.RedfishURLs)) {
			if err := webURL(c.RedfishURLs[node]); err != nil {
				return fmt.Errorf("%s: %w", node, err)
			}
		}
		return nil
	}).Secret()
	s.String(&c.RedfishUser, "redfish-user", "", "user of the Redfish services")
	s.String(&c.RedfishPassword, "redfish-password-file", "", "file with the password of that user")
	s.Bool(&c.RedfishInsecure, "redfish-insecure", false, "take any certificate of the Redfish services")
	s.Duration(&c.RedfishInterval, "redfish-interval", 5*time.Second, "how often the Redfish service is asked").Between(least, most)
}

func (c *Probes) declare(s *config.Section) {
	const mostRate, mostSize = 1000, 1400
	s.Words(&c.Listen, "probe-listen", nil,
		"addresses HOST:PORT at which this node answers probes, one for each interface that jobs use (empty: no probing)").
		Check(func() error {
			for _, text := range c.Listen {
				if at, err := netip.ParseAddrPort(text); err != nil || at.Addr().IsUnspecified() {
					return fmt.Errorf("%q: want an address of this node and a port, such as 10.0.0.2:7070 or [fd00::2]:7070", text)
				}
			}
			return nil
		})
	s.Float(&c.Rate, "probe-rate", 10, "probes sent in a second; five times as many for a minute after one was lost").Above(0).Between(0, mostRate)
	s.Int(&c.Bytes, "probe-bytes", 400, "size of a probe").Between(ProbeHeaderBytes, mostSize)
	s.Int(&c.BudgetPackets, "probe-budget-packets", 120, "the most packets sent in a second: probes, answers and traces").Between(1, math.MaxInt32)
	s.Int(&c.BudgetBytes, "probe-budget-bytes", 12_500, "the most bytes of these, headers included").Between(1, math.MaxInt32)
}

// ProbeHeaderBytes is the least size of a probe.
const ProbeHeaderBytes = 56

func (c *Kubelet) declare(s *config.Section) {
	s.String(&c.Node, "kubernetes-node", "", "name of this node in Kubernetes (field spec.nodeName): its jobs are pods")
	s.String(&c.NodeLabels, "node-labels", "", `file with the labels of this Kubernetes node, as lines key="value" (empty: from the API server, with the pod's service account)`).
		Check(func() error { return absoluteOrNone(c.NodeLabels) })
	s.String(&c.KeyURL, "node-key-url", "", "address at which a server of the bus in Kubernetes gives out the key of this node, such as https://bus.switchyard.svc:4223 (empty: the key is in the folder of keys)").
		Check(func() error {
			if c.KeyURL != "" && !strings.HasPrefix(c.KeyURL, "https://") {
				return errors.New("want an address such as https://bus.switchyard.svc:4223")
			}
			return nil
		})
	s.String(&c.KeyToken, "node-key-token", "/var/run/secrets/switchyard/token", "file with the token of this pod for the audience "+identity.TokenAudience+", which it shows there").
		Check(func() error { return absolute(c.KeyToken) })
	s.Words(&c.Namespaces, "pod-namespace", []string{"switchyard-jobs"}, "namespaces of jobs' pods; a GPU that a pod of another one holds is not planned on").As("pod_namespaces").
		Check(func() error {
			if len(c.Namespaces) == 0 {
				return errors.New("want the namespaces of jobs' pods")
			}
			for _, name := range c.Namespaces {
				if err := namespace(name); err != nil {
					return fmt.Errorf("%q: %w", name, err)
				}
			}
			return nil
		})
	s.String(&c.PodLogs, "pod-logs", "/var/log/pods", "folder into which the kubelet writes the logs of pods").Check(func() error { return absolute(c.PodLogs) })
	s.Int(&c.PodLogLimit, "pod-log-limit", 16, "largest size of the log of a job of pods in MiB: its beginning and its end are kept").Between(1, mostMiB)
	s.String(&c.Root, "kubelet-root", "/var/lib/kubelet", "root folder of the kubelet; the sockets of GPUs go into its plugins_registry").Check(func() error { return absolute(c.Root) })
	s.String(&c.DevicePluginDir, "device-plugin-dir", "",
		"folder for the sockets of GPUs, registered there, for kubelets that do not watch plugins_registry: /var/lib/kubelet/device-plugins").
		Check(func() error { return absoluteOrNone(c.DevicePluginDir) })
	s.Bool(&c.PlainPods, "plain-pods", false, "offer the memory of GPUs to pods of no job as well, as "+train.PodMemoryResource+" in GiB; the scheduler of the cluster has to ask web.extender")
	s.String(&c.GPUResource, "gpu-resource", "",
		"resource under which another device plugin gives out whole GPUs, such as nvidia.com/gpu beside NVIDIA's GPU Operator: jobs' pods ask for that, and the agent offers no GPU itself").
		Check(func() error {
			if c.GPUResource != "" && (!strings.Contains(c.GPUResource, "/") || !train.IsLabel(c.GPUResource, "")) {
				return errors.New("want the name of a resource, such as nvidia.com/gpu")
			}
			return nil
		})
	s.String(&c.GPUClass, "gpu-class", "",
		"DeviceClass by which jobs' pods claim GPUs (resource.k8s.io): gpu.switchyard.dev for this agent's own driver, or that of another driver, such as gpu.nvidia.com").
		Check(func() error {
			switch {
			case c.GPUClass != "" && c.GPUResource != "":
				return errors.New("want it or nodeagent.gpu_resource")
			case c.GPUClass != "" && !train.IsLabel(c.GPUClass, ""):
				return errors.New("want the name of a DeviceClass, such as gpu.nvidia.com")
			}
			return nil
		})
}
