// Package inventory finds out what the node offers: devices, cores, memory, a container runtime. It does not decide
// who gets it.
package inventory

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/engine"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/mps"
)

// What is offered as devices.
const (
	KindAuto = "auto" // GPUs if there are any, else slots
	KindGPU  = "gpu"
	KindCPU  = "cpu"
)

// Config says what to offer.
type Config struct {
	// Kind is one of the values above; Slots the number of CPU slots, 0 for one per core.
	Kind  string
	Slots int
	Proc  proc.Root
	// Cgroups is where control groups are mounted; empty if the limits of this process are not those of jobs, as in
	// the agent's own pod.
	Cgroups string
	// Access says how pods get a GPU. Nil without a kubelet.
	Access func(gpu.Device) Access
	// AsSubmitters says that jobs run as their submitters, whose images run in podman alone.
	AsSubmitters bool
	// MPS is the daemon that limits processes on GPUs; it may be nil.
	MPS *mps.Daemon
}

// Access is how pods get a GPU: by units of an extended resource, or by a claim for a DeviceClass. Whole is set if pods
// do not share it.
type Access struct {
	Resource string
	Units    int
	Class    string
	Whole    bool
}

// Inventory is what does not change while the agent runs, and the last known container runtime.
type Inventory struct {
	config  Config
	bootID  string
	allowed []int
	cores   int
	memory  unit.Bytes
	// hadGPUs stays set when the last GPU fails: its node does not turn into one of CPU slots.
	hadGPUs bool

	runtime   string
	runtimeAt time.Time
}

// New looks at the machine.
func New(c Config) (*Inventory, error) {
	bootID, err := c.Proc.BootID()
	if err != nil {
		return nil, err
	}
	allowed, err := proc.Processors()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(string(c.Proc) + "/meminfo")
	if err != nil {
		return nil, fmt.Errorf("read memory: %w", err)
	}
	memory, err := parseMemory(string(text))
	if err != nil {
		return nil, err
	}
	var l limits
	if c.Cgroups != "" {
		l = readLimits(word(string(c.Proc)+"/self/cgroup"), c.Cgroups)
	}
	if l.memory > 0 {
		memory = min(memory, l.memory)
	}
	return &Inventory{config: c, bootID: bootID, allowed: allowed, cores: coreCount(len(allowed), l), memory: memory}, nil
}

// Node describes the machine with the present GPUs.
func (i *Inventory) Node(ctx context.Context, id train.NodeID, gpus []gpu.Device, now time.Time) train.Node {
	n := train.Node{ID: id, BootID: i.bootID, Cores: i.cores, Memory: i.memory, ContainerRuntime: i.containerRuntime(ctx, now), SeenAt: now}
	if daemon := i.config.MPS; daemon != nil && slices.ContainsFunc(gpus, mayUseMPS) {
		daemon.Ask(ctx, now)
		n.MPSDir = daemon.Dir()
	}
	n.Devices = i.devices(gpus, n.MPSDir != "")
	return n
}

func mayUseMPS(g gpu.Device) bool { return !g.Simulated && g.Instance == 0 }

// BootID identifies the run of the kernel.
func (i *Inventory) BootID() string { return i.bootID }

func (i *Inventory) devices(gpus []gpu.Device, mps bool) []train.Device {
	i.hadGPUs = i.hadGPUs || len(gpus) > 0
	if i.config.Kind == KindGPU || (i.config.Kind == KindAuto && i.hadGPUs) {
		return i.gpuDevices(gpus, mps)
	}
	return slots(i.config.Slots, i.cores, i.allowed)
}

// gpuDevices returns the GPUs that can take new work.
func (i *Inventory) gpuDevices(gpus []gpu.Device, mps bool) []train.Device {
	devices := []train.Device{}
	for _, g := range gpus {
		if g.Trouble != "" {
			continue
		}
		d := train.Device{
			ID: g.ID(), Kind: train.KindGPU, Model: g.Model, UUID: g.UUID, Driver: g.Driver, Memory: g.Memory, Simulated: g.Simulated, BusyWatts: g.PowerLimit.Watts(),
			Enforcement: enforcement(g, mps),
		}
		if i.config.Access != nil {
			by := i.config.Access(g)
			d.Resource, d.Units, d.Class = by.Resource, by.Units, by.Class
			if by.Whole {
				d.Enforcement = train.GivenWhole
			}
		}
		devices = append(devices, d)
	}
	return devices
}

// enforcement returns what limits jobs to their shares of a GPU.
func enforcement(g gpu.Device, mps bool) train.Enforcement {
	switch {
	case g.Instance > 0:
		return train.EnforcedByMIG
	case mps && mayUseMPS(g):
		return train.EnforcedByMPS
	case g.Memory > 0:
		return train.EnforcedByAdvice
	}
	return train.NotEnforced
}

// slots returns CPU slots, each with its own processor as far as there are enough. A slot has no memory of its own:
// the slots share the machine's.
func slots(n, cores int, allowed []int) []train.Device {
	if n == 0 {
		n = cores
	}
	devices := make([]train.Device, n)
	for s := range devices {
		devices[s] = train.Device{
			ID: train.DeviceID(fmt.Sprintf("%s:%d", train.KindCPU, s)), Kind: train.KindCPU, Core: allowed[s%len(allowed)],
		}
	}
	return devices
}

const (
	// runtimeTimeout is how long a container runtime may take to answer, runtimeInterval how often it is asked.
	runtimeTimeout  = 2 * time.Second
	runtimeInterval = time.Minute
)

// containerRuntime returns the first runtime that works, and is not merely installed.
func (i *Inventory) containerRuntime(ctx context.Context, now time.Time) string {
	if !i.runtimeAt.IsZero() && now.Sub(i.runtimeAt) < runtimeInterval {
		return i.runtime
	}
	i.runtime, i.runtimeAt = "", now
	if i.config.AsSubmitters { // whether it works is seen as a submitter alone
		if slices.IndexFunc([]string{string(engine.Podman), "crun"}, func(name string) bool { _, err := exec.LookPath(name); return err != nil }) < 0 {
			i.runtime = string(engine.Podman)
		}
		return i.runtime
	}
	e, _ := engine.Find(ctx, runtimeTimeout)
	i.runtime = string(e)
	return i.runtime
}
