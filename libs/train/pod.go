package train

import (
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// PodMemoryResource is the extended resource by which pods that belong to no job ask for memory of any one GPU, in GiB.
// The name is IADeep's.
const PodMemoryResource = "gpushare/gpu-mem"

// PlainPod is a pod of Kubernetes that belongs to no job and asks for memory of any GPU.
type PlainPod struct {
	// UID is Kubernetes' id of this very pod.
	UID string `json:"uid"`
	// Namespace is the one that the pod is in.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Image and Command are those of the container that asks. They identify its program: how it gets on with co-runners
	// is predicted from what jobs with the same image and command have shown.
	Image   string     `json:"image,omitempty"`
	Command []string   `json:"command,omitempty"`
	Memory  unit.Bytes `json:"memory_bytes"`
	// CreatedAt is when the pod was made.
	CreatedAt time.Time `json:"created_at"`
}

// FullName is the pod's name in the cluster.
func (p *PlainPod) FullName() string { return p.Namespace + "/" + p.Name }

// Job returns the id under which plans have the pod. No job can have it: ids of jobs have no dot.
func (p *PlainPod) Job() JobID { return PlainPodJob(p.UID) }

// PlainPodJob returns the id under which plans have the pod with a UID.
func PlainPodJob(uid string) JobID { return JobID("pod." + uid) }

// Spec describes the pod as a job: one device, shared, also across tenants. Its tenant is its namespace.
func (p *PlainPod) Spec() Spec {
	return Spec{
		Name: p.FullName(), Tenant: p.Namespace, Image: p.Image, Command: p.Command, Device: KindGPU, SingleDevice: true,
		AllowSharing: true, ShareAcrossTenants: true, EstimatedMemoryMiB: p.Memory.MiB(),
	}.WithDefaults()
}

// PlacedPod is a pod with the memory of a GPU that is booked for it.
type PlacedPod struct {
	// Pod is what was placed.
	Pod    PlainPod `json:"pod"`
	Node   NodeID   `json:"node"`
	Device DeviceID `json:"device"`
	// Memory is the part of the device, as plans account for it.
	Memory unit.Bytes `json:"memory_bytes"`
	// PlacedAt is when the planner booked the memory.
	PlacedAt time.Time `json:"placed_at"`
	// SeenAt is when the agent of the node first reported the pod on the device.
	SeenAt time.Time `json:"seen_at,omitzero"`
}

// String names the pod and where it is.
func (p *PlacedPod) String() string {
	return fmt.Sprintf("pod %s with %s of %s of node %s", p.Pod.FullName(), p.Memory, p.Device, p.Node)
}
