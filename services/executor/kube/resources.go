package kube

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// What a pod asks for of its node's processors, in thousandths: for each that it may use, and at least. It is less than it may use, since the plan counts slots
// and the node has its own processes, too; and a pod that asked for all that it may use would be of another class, which cannot change.
const (
	coreMillis    = 500
	processMillis = 50
)

// resources asks for the job's part of each device, all of it where it is not shared, and for processors and memory.
func (o order) resources(p launch.Process) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, d := range p.Devices {
		if d.Resource != "" {
			units := *resource.NewQuantity(int64(d.UnitsOf(o.Places[p.Place].Memory)), resource.DecimalSI)
			r.Requests[corev1.ResourceName(d.Resource)], r.Limits[corev1.ResourceName(d.Resource)] = units, units
		}
	}
	slots := slotsOf(p.Devices)
	cores := o.Cores()
	if slots > 0 && (cores == 0 || cores > slots) {
		cores = slots
	}
	setCores(r, cores)
	if o.options.MemoryLimit != "" {
		r.Limits[corev1.ResourceMemory] = resource.MustParse(o.options.MemoryLimit)
	}
	if mib := o.MemoryMiB(); mib > 0 && o.options.allowsMemory(mib) == "" {
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

// setCores bounds a pod to so many processors; 0 leaves it all of its node's.
func setCores(r corev1.ResourceRequirements, cores int) {
	r.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(max(int64(cores)*coreMillis, processMillis), resource.DecimalSI)
	if cores > 0 {
		r.Limits[corev1.ResourceCPU] = *resource.NewQuantity(int64(cores), resource.DecimalSI)
	}
}

// setMemory bounds a pod to so much main memory, which is also set aside for it.
func setMemory(r corev1.ResourceRequirements, mib int64) {
	q := *resource.NewQuantity(mib<<20, resource.BinarySI)
	r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory] = q, q
}

// allowsMemory says why a pod may not have so much main memory; empty where it may.
func (o *Options) allowsMemory(mib int64) string {
	if o.MemoryLimit == "" {
		return ""
	}
	if most := resource.MustParse(o.MemoryLimit); most.Value() < mib<<20 {
		return "the operator allows a pod " + most.String() + " of memory (--pod-memory-limit)"
	}
	return ""
}

// slotsOn are the CPU slots that a pod was made with; 0 where its devices are others.
func slotsOn(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[annotationSlots])
	if err != nil {
		return 0
	}
	return n
}
