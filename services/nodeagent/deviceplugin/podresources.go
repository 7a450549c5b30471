package deviceplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// PodResources asks the kubelet which devices pods have, whichever plugin or driver gave them: units of this agent's
// resources, whole GPUs of another plugin such as NVIDIA's, or what the pods have claimed.
type PodResources struct {
	// Socket is where the kubelet answers.
	Socket string
	// Namespaces are those of jobs' pods, Attempts returns the newest attempt of each job.
	Namespaces []string
	Attempts   func() []train.Attempt
	// UUID returns the UUID of a claimed device, empty if it is not known. It may be nil.
	UUID func(driver, pool, device string) string
	// Resource is the resource under which another plugin gives out the node's GPUs; empty if this agent's plugins do.
	Resource string
	// OnChange is called with an error when it changes; nil is its end.
	OnChange func(error)

	mu     sync.Mutex
	newest answer
	// known are the GPUs that the other plugin has ever offered: a GPU keeps its place while it is in trouble.
	known     []string
	lastError string
}

// answer is what the kubelet said.
type answer struct {
	// pods has what each pod holds, by namespace/name: ids of devices, and resources of single GPUs.
	pods map[string][]string
	// offered are the healthy GPUs of the other plugin.
	offered []string
}

const (
	// listTimeout bounds one question, lookEvery is how often it is asked.
	listTimeout = 2 * time.Second
	lookEvery   = time.Second
)

// Run asks the kubelet until ctx ends.
func (p *PodResources) Run(ctx context.Context) error {
	for range tick.Every(ctx, lookEvery) {
		p.Look(ctx)
	}
	return nil
}

// Look asks the kubelet once. While it does not answer, its last answer counts.
func (p *PodResources) Look(ctx context.Context) {
	a, err := p.ask(ctx)
	text := ""
	p.mu.Lock()
	if err != nil {
		text = err.Error()
	} else {
		p.newest = a
		fresh := slices.DeleteFunc(slices.Clone(a.offered), func(id string) bool { return slices.Contains(p.known, id) })
		p.known = append(p.known, fresh...)
	}
	changed := text != p.lastError && ctx.Err() == nil
	p.lastError = text
	p.mu.Unlock()
	if changed {
		p.OnChange(err)
	}
}

// Mark enters which devices the pods of others hold.
func (p *PodResources) Mark(devices []train.Device) {
	p.mu.Lock()
	pods := p.newest.pods
	p.mu.Unlock()
	for _, pod := range p.others(pods) {
		for i := range devices {
			d := &devices[i]
			if d.UUID != "" && slices.Contains(pods[pod], d.UUID) || d.Resource != "" && slices.Contains(pods[pod], d.Resource) {
				d.HeldBy = "pod " + pod
			}
		}
	}
	for i := range devices {
		for _, pod := range slices.Sorted(maps.Keys(pods)) {
			if d := &devices[i]; d.Resource != "" && slices.Contains(pods[pod], memoryOf(d.Resource)) {
				d.Pods = append(d.Pods, pod)
			}
		}
	}
}

// memoryOf is what a pod holds that has memory of the GPU with a resource, and belongs to no job.
func memoryOf(resource string) string { return train.PodMemoryResource + " " + resource }

// others lists the pods that are not those of jobs. A pod is a job's by its namespace and its name.
func (p *PodResources) others(pods map[string][]string) []string {
	jobs := map[string]bool{}
	for _, a := range p.Attempts() {
		jobs[a.Namespace+"/"+train.PodSlug(a.Job)] = true
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(pods)), func(pod string) bool {
		namespace, name, _ := strings.Cut(pod, "/")
		slug, _, _, numbered := train.CutPodName(name)
		return numbered && slices.Contains(p.Namespaces, namespace) && jobs[namespace+"/"+slug]
	})
}

// HasMemory reports whether a pod of no job has memory of a GPU.
func (p *PodResources) HasMemory(pod string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.newest.pods[pod], func(held string) bool { return strings.HasPrefix(held, memoryOf("")) })
}

// Devices lists the GPUs of the other plugin by their ids, for an agent that cannot read them itself.
func (p *PodResources) Devices() ([]gpu.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	devices := make([]gpu.Device, len(p.known))
	for i, id := range p.known {
		devices[i] = gpu.Device{Index: i, UUID: id}
	}
	return devices, nil
}

// Sample reads nothing.
func (p *PodResources) Sample(int) (gpu.Sample, error) { return gpu.Sample{}, nil }

// GivenOut returns a reader of the same GPUs for a node whose GPUs another plugin gives out. There the kubelet chooses
// the GPU of a pod: the GPU gets the name for which the plan has it, in exchange for that name's GPU. GPUs that the
// kubelet does not offer are in trouble.
func (p *PodResources) GivenOut(r gpu.Reader, live func() []train.Attempt) gpu.Reader {
	return givenOut{r, p, live}
}

type givenOut struct {
	gpu.Reader
	kubelet *PodResources
	live    func() []train.Attempt
}

// Devices lists the GPUs in the order of their names.
func (g givenOut) Devices() ([]gpu.Device, error) {
	devices, err := g.Reader.Devices()
	if err != nil {
		return nil, err
	}
	g.kubelet.mu.Lock()
	a := g.kubelet.newest
	g.kubelet.mu.Unlock()
	for i := range devices {
		if d := &devices[i]; d.Trouble == "" && !slices.Contains(a.offered, d.UUID) {
			d.Trouble = "the kubelet does not offer it as " + g.kubelet.Resource
		}
	}
	return rename(devices, a.planned(g.live())), nil
}

// planned returns the names that plans have for the GPUs of jobs' pods.
func (a answer) planned(live []train.Attempt) map[string]train.DeviceID {
	names := map[string]train.DeviceID{}
	for _, attempt := range live {
		prefix := attempt.Namespace + "/" + strings.TrimSuffix(train.PodName(attempt.Job, attempt.Number, 0), "0")
		byRank := map[int][]string{}
		for pod, ids := range a.pods {
			suffix, is := strings.CutPrefix(pod, prefix)
			if rank, err := strconv.Atoi(suffix); is && err == nil {
				byRank[rank] = ids
			}
		}
		left := attempt.Devices
		for _, rank := range slices.Sorted(maps.Keys(byRank)) {
			for _, id := range byRank[rank][:min(len(left), len(byRank[rank]))] {
				names[id], left = left[0], left[1:]
			}
		}
	}
	return names
}

// rename exchanges GPUs until each that has a planned name is at its place. An instance of a partitioned GPU keeps its
// name, which says whose instance it is.
func rename(devices []gpu.Device, planned map[string]train.DeviceID) []gpu.Device {
	names := make([]train.DeviceID, len(devices))
	at := map[string]int{}
	for i, d := range devices {
		names[i], at[d.UUID] = d.ID(), i
	}
	for _, uuid := range slices.Sorted(maps.Keys(planned)) {
		from, found := at[uuid]
		to := slices.Index(names, planned[uuid])
		if !found || to < 0 || devices[from].Instance > 0 || devices[to].Instance > 0 {
			continue
		}
		at[uuid], at[devices[to].UUID] = to, from
		devices[from], devices[to] = devices[to], devices[from]
	}
	for i := range devices {
		devices[i].Name = names[i]
	}
	return devices
}

// ask reads what pods have and, if another plugin gives out the GPUs, which it offers.
func (p *PodResources) ask(ctx context.Context) (answer, error) {
	a := answer{pods: map[string][]string{}}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+p.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return a, fmt.Errorf("reach the kubelet: %w", err)
	}
	defer func() { _ = connection.Close() }()
	kubelet := podresources.NewPodResourcesListerClient(connection)
	pods, err := kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return a, fmt.Errorf("list the devices of pods: %w", err)
	}
	for _, pod := range pods.GetPodResources() {
		if held := p.held(pod); len(held) > 0 {
			a.pods[pod.GetNamespace()+"/"+pod.GetName()] = held
		}
	}
	if p.Resource == "" {
		return a, nil
	}
	all, err := kubelet.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return a, fmt.Errorf("list the devices of the node: %w", err)
	}
	for _, d := range all.GetDevices() {
		if d.GetResourceName() == p.Resource {
			a.offered = append(a.offered, boards(d.GetDeviceIds())...)
		}
	}
	slices.Sort(a.offered)
	a.offered = slices.Compact(a.offered)
	return a, nil
}

// held lists what a pod holds.
func (p *PodResources) held(pod *podresources.PodResources) []string {
	var held []string
	for _, c := range pod.GetContainers() {
		for _, d := range c.GetDevices() {
			if d.GetResourceName() == train.PodMemoryResource && len(d.GetDeviceIds()) > 0 {
				name, _, _ := strings.Cut(d.GetDeviceIds()[0], "-") // a unit begins with the short name of its GPU
				held = append(held, memoryOf(resourcePrefix+name))
				continue
			}
			if strings.HasPrefix(d.GetResourceName(), resourcePrefix) {
				held = append(held, d.GetResourceName())
			}
			held = append(held, boards(d.GetDeviceIds())...)
		}
		for _, claim := range c.GetDynamicResources() {
			for _, d := range claim.GetClaimResources() {
				if p.UUID != nil {
					held = append(held, p.UUID(d.GetDriverName(), d.GetPoolName(), d.GetDeviceName()))
				}
			}
		}
	}
	slices.Sort(held)
	return held
}

// boards returns the GPUs of device ids: NVIDIA's plugin numbers the shares of a GPU as UUID::0, UUID::1.
func boards(ids []string) []string {
	uuids := make([]string, len(ids))
	for i, id := range ids {
		uuids[i], _, _ = strings.Cut(id, "::")
	}
	return uuids
}
