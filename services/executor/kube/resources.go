package kube

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// What a pod requests of its node's processors, in thousandths: for each that it may use, and at least. It requests
// less than it may use, because the plan counts slots and the node has its own processes too. A pod that requested
// its limit would be of another QoS class, which cannot change.
const (
	coreMillis    = 500
	processMillis = 50
)

// resources requests the job's share of each device, all of it if it is not shared, and processors and memory: for a
// parameter server what it was planned with.
func (t podTemplate) resources(p launch.Process) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, d := range p.Devices {
		if d.Resource != "" {
			name := corev1.ResourceName(d.Resource)
			units := r.Requests[name] // of other devices, if the resource is not that of one
			units.Add(*resource.NewQuantity(int64(d.UnitsOf(t.Places[p.Place].Memory)), resource.DecimalSI))
			r.Requests[name], r.Limits[name] = units, units
		}
	}
	slots := slotsOf(p.Devices)
	cores := t.Cores(p)
	if slots > 0 && (cores == 0 || cores > slots) {
		cores = slots
	}
	setCores(r, cores)
	if t.options.MemoryLimit != "" {
		r.Limits[corev1.ResourceMemory] = resource.MustParse(t.options.MemoryLimit)
	}
	if mib := t.MemoryMiB(p); mib > 0 && allowsMemory(t.options, mib) == "" {
		setMemory(r, mib)
	}
	return r
}

// slotsOf counts the CPU slots among devices.
func slotsOf(devices []train.Device) int {
	slots := 0
	for _, d := range devices {
		if d.Kind == train.KindCPU {
			slots++
		}
	}
	return slots
}

// setCores limits a pod to cores processors; 0 means all of its node's.
func setCores(r corev1.ResourceRequirements, cores int) {
	r.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(max(int64(cores)*coreMillis, processMillis), resource.DecimalSI)
	if cores > 0 {
		r.Limits[corev1.ResourceCPU] = *resource.NewQuantity(int64(cores), resource.DecimalSI)
	}
}

// setMemory limits a pod to an amount of main memory, and requests as much.
func setMemory(r corev1.ResourceRequirements, mib int64) {
	q := *resource.NewQuantity(mib<<20, resource.BinarySI)
	r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory] = q, q
}

// allowsMemory explains why a pod may not have that much main memory; it is empty if the pod may.
func allowsMemory(t Options, mib int64) string {
	if t.MemoryLimit == "" {
		return ""
	}
	if most := resource.MustParse(t.MemoryLimit); most.Value() < mib<<20 {
		return "the operator allows a pod at most " + most.String() + " of memory (executor.pod_memory_limit)"
	}
	return ""
}

// slotsOn returns the CPU slots that a pod was made with; 0 if it has other devices.
func slotsOn(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[annotationSlots])
	if err != nil {
		return 0
	}
	return n
}
