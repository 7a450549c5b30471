package launch

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// GPUs returns the devices of a place that programs may open: no CPU slots and no simulated GPUs.
func (p Place) GPUs() []train.Device {
	var real []train.Device
	for _, d := range p.Devices {
		if d.Kind == train.KindGPU && !d.Simulated {
			real = append(real, d)
		}
	}
	return real
}

// onMachine returns the CUDA names of GPUs on the machine itself: their indices there, or UUIDs for MIG instances,
// which have no index.
func onMachine(gpus []train.Device) string {
	return joinNames(gpus, func(_ int, d train.Device) string { return d.ID.Index() })
}

// Inside returns the CUDA names of GPUs in a container that sees only these; it numbers them from 0.
func Inside(gpus []train.Device) string {
	return joinNames(gpus, func(i int, _ train.Device) string { return strconv.Itoa(i) })
}

func joinNames(gpus []train.Device, number func(int, train.Device) string) string {
	words := make([]string, len(gpus))
	for i, d := range gpus {
		words[i] = number(i, d)
		if d.Enforcement == train.EnforcedByMIG {
			words[i] = d.UUID
		}
	}
	return strings.Join(words, ",")
}

// addMPS makes the processes of a place use the node's Multi-Process Service, which limits jobs that share devices.
// CUDA numbers the visible devices from 0, whatever their indices on the machine.
func (p Place) addMPS(env map[string]string) {
	if !p.UsesMPS() {
		return
	}
	env["CUDA_MPS_PIPE_DIRECTORY"] = p.Node.MPSDir
	if p.Memory <= 0 {
		return
	}
	var limits []string
	threads := 0
	for i, d := range p.GPUs() {
		limits = append(limits, fmt.Sprintf("%d=%dM", i, p.Memory/unit.MiB))
		threads = max(threads, threadPercentage(p.Memory, d.Memory))
	}
	env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = strings.Join(limits, ",")
	env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = strconv.Itoa(threads)
}

// UsesMPS reports whether the processes of the place reach its GPUs through the node's Multi-Process Service.
func (p Place) UsesMPS() bool {
	gpus := p.GPUs()
	return p.Node.MPSDir != "" && len(gpus) > 0 && train.Weakest(gpus) == train.EnforcedByMPS
}

// threadPercentage returns the share of a device's processors that a job may use at the same time. NVIDIA recommends
// 2/n for n clients, so that one client can use what others leave idle; the job's share of the memory stands for 1/n.
// No job gets less than half.
func threadPercentage(part, whole unit.Bytes) int {
	const all, least = 100, 50
	if part >= whole/2 {
		return all
	}
	return max(least, int(2*all*part/whole))
}
