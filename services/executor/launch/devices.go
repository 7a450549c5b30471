package launch

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// GPUs are the devices of a place that programs may open: none for a job on processor slots, and none that is only simulated.
func (p Place) GPUs() []train.Device {
	var real []train.Device
	for _, d := range p.Devices {
		if d.Kind == train.KindGPU && !d.Simulated {
			real = append(real, d)
		}
	}
	return real
}

// onMachine names GPUs to CUDA on the machine itself: by their numbers there, instances of partitioned ones by UUID, as they have no number.
func onMachine(gpus []train.Device) string {
	return names(gpus, func(_ int, d train.Device) string { return d.ID.Index() })
}

// Inside names GPUs to CUDA in a container that sees these alone: they are numbered anew there.
func Inside(gpus []train.Device) string {
	return names(gpus, func(i int, _ train.Device) string { return strconv.Itoa(i) })
}

func names(gpus []train.Device, number func(int, train.Device) string) string {
	words := make([]string, len(gpus))
	for i, d := range gpus {
		words[i] = number(i, d)
		if d.Enforcement == train.EnforcedByMIG {
			words[i] = d.UUID
		}
	}
	return strings.Join(words, ",")
}

// addMPS has the processes of a place use the node's Multi-Process Service, which bounds those of a job that shares its devices. CUDA counts the devices that it
// was told of from 0 on, whatever their numbers on the machine.
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

// UsesMPS says whether processes of the place reach its GPUs through the node's Multi-Process Service.
func (p Place) UsesMPS() bool {
	gpus := p.GPUs()
	return p.Node.MPSDir != "" && len(gpus) > 0 && train.Weakest(gpus) == train.EnforcedByMPS
}

// threadPercentage is the part of a device's processors that a job may have at the same time. NVIDIA's advice for n clients is 2/n of them, so that nobody idles what
// another one could use; the part of the memory stands for 1/n. Nobody gets less than half.
func threadPercentage(part, whole unit.Bytes) int {
	const all, least = 100, 50
	if part >= whole/2 {
		return all
	}
	return max(least, int(2*all*part/whole))
}
