package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registry "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// plugin serves a resource to the kubelet: one GPU, or the memory of all.
type plugin struct {
	kubelet.UnimplementedDevicePluginServer
	registry.UnimplementedRegistrationServer

	// dev is where device nodes are, endpoint the path of the socket, mps returns the folder of the Multi-Process
	// Service.
	dev      string
	endpoint string
	resource string
	mps      func() string
	log      *slog.Logger
	// units returns the number of units of a GPU.
	units func(gpu.Device) int
	// booked returns the GPU for the next pod with that number of units; nil for a resource of one GPU.
	booked func(ctx context.Context, units int) (train.DeviceID, bool)

	mu   sync.Mutex
	gpus []gpu.Device
	// asked is set once a kubelet has asked for the units.
	asked bool
	// changed is closed and replaced when the answer of ListAndWatch changes.
	changed chan struct{}
}

func newPlugin(resource string, units func(gpu.Device) int, c Config, endpoint string) *plugin {
	return &plugin{
		dev: c.Dev, endpoint: endpoint, resource: resource, mps: c.MPSDir, units: units, changed: make(chan struct{}), log: c.Log.With("resource", resource),
	}
}

// update stores the present state of the GPUs. A GPU that is no longer listed fails, because pods may be using it.
func (p *plugin) update(listed ...gpu.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := slices.Clone(listed)
	for _, g := range p.gpus {
		if !slices.ContainsFunc(listed, func(o gpu.Device) bool { return o.UUID == g.UUID }) {
			g.Trouble = "it is no longer there"
			next = append(next, g)
		}
	}
	same := slices.EqualFunc(p.gpus, next, func(x, y gpu.Device) bool { return x.UUID == y.UUID && x.Trouble == y.Trouble && x.Memory == y.Memory })
	for _, g := range next {
		at := slices.IndexFunc(p.gpus, func(o gpu.Device) bool { return o.UUID == g.UUID })
		switch {
		case at < 0 && g.Trouble == "" || at >= 0 && p.gpus[at].Trouble == g.Trouble:
		case g.Trouble != "":
			p.log.Warn("GPU fails: no new work is placed on it", "device", g.ID(), "trouble", g.Trouble)
		default:
			p.log.Info("GPU works again", "device", g.ID())
		}
	}
	p.gpus = next
	if same {
		return
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// now returns the GPUs, and a channel that is closed when they change.
func (p *plugin) now() ([]gpu.Device, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gpus, p.changed
}

// neverAsked reports whether no kubelet has ever asked for the units.
func (p *plugin) neverAsked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.asked
}

// GetInfo identifies the plugin to the kubelet's watcher of plugins.
func (p *plugin) GetInfo(context.Context, *registry.InfoRequest) (*registry.PluginInfo, error) {
	return &registry.PluginInfo{
		Type: registry.DevicePlugin, Name: p.resource, Endpoint: p.endpoint, SupportedVersions: []string{kubelet.Version},
	}, nil
}

// NotifyRegistrationStatus receives the kubelet's result.
func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registry.RegistrationStatus) (*registry.RegistrationStatusResponse, error) {
	if s.PluginRegistered {
		p.log.Info("the kubelet accounts for the resource")
	} else {
		p.log.Error("the kubelet refuses the device plugin", "error", s.Error)
	}
	return &registry.RegistrationStatusResponse{}, nil
}

// GetDevicePluginOptions says whether the units of a container are to be chosen.
func (p *plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return p.options(), nil
}

func (p *plugin) options() *kubelet.DevicePluginOptions {
	return &kubelet.DevicePluginOptions{GetPreferredAllocationAvailable: p.booked != nil}
}

// ListAndWatch sends the units of the GPU, and again whenever its health changes.
func (p *plugin) ListAndWatch(_ *kubelet.Empty, to kubelet.DevicePlugin_ListAndWatchServer) error {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	for {
		gpus, changed := p.now()
		var answer kubelet.ListAndWatchResponse
		for _, g := range gpus {
			health := kubelet.Healthy
			if g.Trouble != "" {
				health = kubelet.Unhealthy
			}
			for _, id := range unitIDs(g, p.units(g)) {
				answer.Devices = append(answer.Devices, &kubelet.Device{ID: id, Health: health})
			}
		}
		if err := to.Send(&answer); err != nil {
			return err
		}
		select {
		case <-to.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate returns what containers with units of a GPU need. The names are the GPU's own, so that a container with
// two GPUs gets both answers completely.
func (p *plugin) Allocate(_ context.Context, r *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	var answer kubelet.AllocateResponse
	for _, c := range r.ContainerRequests {
		g, known, err := p.gpuOf(c.DevicesIds)
		if err != nil {
			return nil, err
		}
		name := Variable(g.UUID)
		given := &kubelet.ContainerAllocateResponse{
			Envs:    map[string]string{name: g.UUID, name + "_UNITS": strconv.Itoa(len(c.DevicesIds)) + "/" + strconv.Itoa(known)},
			Devices: p.nodes(g), Mounts: p.mounts(g),
		}
		if p.booked != nil {
			maps.Copy(given.Envs, p.plainEnv(g, len(c.DevicesIds), given.Mounts))
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return &answer, nil
}

// gpuOf returns the one GPU of some units, and the number of all its units.
func (p *plugin) gpuOf(ids []string) (found gpu.Device, units int, err error) {
	gpus, _ := p.now()
	for _, g := range gpus {
		known := unitIDs(g, p.units(g))
		if len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(known, id) }) {
			return g, len(known), nil
		}
	}
	return gpu.Device{}, 0, status.Errorf(codes.InvalidArgument, "%s: no GPU has the units %q", p.resource, ids)
}

// plainEnv is what a container that no executor describes needs in its environment: the GPU by the name under which
// NVIDIA's runtime knows it, and the limit of its memory under the Multi-Process Service.
func (p *plugin) plainEnv(g gpu.Device, units int, mounts []*kubelet.Mount) map[string]string {
	env := map[string]string{}
	if !g.Simulated {
		env["NVIDIA_VISIBLE_DEVICES"] = g.UUID
	}
	if len(mounts) > 0 {
		env["CUDA_MPS_PIPE_DIRECTORY"] = mounts[0].ContainerPath
		env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = fmt.Sprintf("0=%dG", units)
	}
	return env
}

// mounts are the folders that a container needs. A container with two GPUs gets them twice, which the kubelet merges.
func (p *plugin) mounts(g gpu.Device) []*kubelet.Mount {
	var mounts []*kubelet.Mount
	for _, dir := range Folders(g, p.mps) {
		mounts = append(mounts, &kubelet.Mount{ContainerPath: dir, HostPath: dir})
	}
	return mounts
}

// nodes are the device nodes that a container needs.
func (p *plugin) nodes(g gpu.Device) []*kubelet.DeviceSpec {
	var nodes []*kubelet.DeviceSpec
	for _, name := range Nodes(g, p.dev) {
		nodes = append(nodes, &kubelet.DeviceSpec{ContainerPath: "/dev/" + name, HostPath: filepath.Join(p.dev, name), Permissions: "rw"})
	}
	return nodes
}

// GetPreferredAllocation chooses units of the GPU whose memory is booked. A pod for which none is booked is refused:
// its scheduler did not ask the planner, and its memory would be given twice.
func (p *plugin) GetPreferredAllocation(ctx context.Context, r *kubelet.PreferredAllocationRequest) (*kubelet.PreferredAllocationResponse, error) {
	var answer kubelet.PreferredAllocationResponse
	for _, c := range r.ContainerRequests {
		units := int(c.AllocationSize)
		device, booked := p.booked(ctx, units)
		if !booked {
			return nil, status.Errorf(codes.FailedPrecondition, "no memory of a GPU is booked for a pod with %d of %s: its scheduler has to ask Switchyard (docs/kubernetes.md)", units, p.resource)
		}
		gpus, _ := p.now()
		at := slices.IndexFunc(gpus, func(g gpu.Device) bool { return g.ID() == device })
		if at < 0 {
			return nil, status.Errorf(codes.FailedPrecondition, "%s, which is booked, is not there", device)
		}
		of := unitIDs(gpus[at], p.units(gpus[at]))
		ids := slices.DeleteFunc(slices.Clone(c.AvailableDeviceIDs), func(id string) bool { return !slices.Contains(of, id) })
		slices.Sort(ids)
		if len(ids) < units {
			return nil, status.Errorf(codes.FailedPrecondition, "%s has %d units left, and %d are booked", device, len(ids), units)
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerPreferredAllocationResponse{DeviceIDs: ids[:units]})
	}
	return &answer, nil
}

// PreStartContainer is never called.
func (p *plugin) PreStartContainer(context.Context, *kubelet.PreStartContainerRequest) (*kubelet.PreStartContainerResponse, error) {
	return &kubelet.PreStartContainerResponse{}, nil
}
