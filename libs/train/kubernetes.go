package train

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// digest returns a few digits that distinguish shortened names.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// KubernetesNodeID returns the id of the node that Kubernetes calls name: the name itself if it is a valid id, else the
// name without its dots and a digest of it.
func KubernetesNodeID(name string) NodeID {
	if _, err := ParseJobID(name); err == nil {
		return NodeID(name)
	}
	plain := strings.ReplaceAll(name, ".", "-")
	return NodeID(plain[:min(len(plain), MaxIDLength-9)] + "-" + digest(name))
}

// longestLabel is the longest name that Kubernetes also accepts as a host name.
const longestLabel = 63

// PodName returns the name of the pod of one rank of an attempt, the same for every caller: "<job>-<attempt>-<rank>". A
// job id that is not a DNS label, or is too long, is shortened and gets a digest. So does an id that ends as such names
// do: it may be what another id becomes.
func PodName(job JobID, attempt, rank int) string {
	return fmt.Sprintf("%s-%d-%d", PodSlug(job), attempt, rank)
}

// PodSlug is how the names of a job's pods begin.
func PodSlug(job JobID) string {
	const widest = len("-1000000-100000")
	slug := strings.Trim(strings.ReplaceAll(strings.ToLower(string(job)), "_", "-"), "-")
	if slug != string(job) || len(slug) > longestLabel-widest || endsInDigest(slug) {
		mark := "-" + digest(string(job))
		slug = slug[:min(len(slug), longestLabel-widest-len(mark))] + mark
	}
	return slug
}

func endsInDigest(s string) bool {
	at := strings.LastIndexByte(s, '-')
	_, err := hex.DecodeString(s[at+1:])
	return at >= 0 && len(s)-at == len("-01234567") && err == nil
}

// CutPodName cuts a name that PodName may have made; ok is false for other names.
func CutPodName(name string) (slug string, attempt, rank int, ok bool) {
	rest, rank, ranked := cutNumber(name)
	slug, attempt, numbered := cutNumber(rest)
	return slug, attempt, rank, ranked && numbered
}

// cutNumber cuts "-7" off the end of a name.
func cutNumber(name string) (rest string, number int, ok bool) {
	at := strings.LastIndexByte(name, '-')
	if at < 0 {
		return name, 0, false
	}
	number, err := strconv.Atoi(name[at+1:])
	return name[:at], number, err == nil && number >= 0
}

// Home returns the node whose agent serves the job API to every rank of the attempt, wherever it runs: one agent gives
// all ranks the same answer, so that a gang stops together.
func (a Attempt) Home() NodeID { return a.Places()[0].Node }

// FirstWorker returns the rank of the first process that trains: the scheduler and the servers of a parameter-server
// job come before it. It runs on the attempt's home.
func (a Attempt) FirstWorker() int {
	if servers := CountServers(a.ServerParts()); servers > 0 {
		return 1 + servers
	}
	return 0
}

// MostRanks returns how many pods the attempt has if there is one for each device. There may be one for each node.
func (a Attempt) MostRanks() int { return a.FirstWorker() + max(a.DeviceCount(), len(a.Places())) }

// PartOn returns the attempt's part on one node, or an empty part.
func (a Attempt) PartOn(node NodeID) Part {
	for _, p := range a.Places() {
		if p.Node == node {
			return p
		}
	}
	return Part{}
}

// DevicesOn returns the devices of the attempt on one node.
func (a Attempt) DevicesOn(node NodeID) []DeviceID { return a.PartOn(node).Devices }

// IsOn reports whether the attempt has a part on a node.
func (a Attempt) IsOn(node NodeID) bool {
	return slices.ContainsFunc(a.Places(), func(p Part) bool { return p.Node == node })
}

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
