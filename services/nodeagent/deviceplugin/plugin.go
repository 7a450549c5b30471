package deviceplugin

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registry "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// plugin serves one GPU to the kubelet.
type plugin struct {
	kubelet.UnimplementedDevicePluginServer
	registry.UnimplementedRegistrationServer

	// dev is where device nodes are, endpoint the path of the socket, mps returns the folder of the Multi-Process
	// Service.
	dev      string
	endpoint string
	mps      func() string
	log      *slog.Logger

	mu  sync.Mutex
	gpu gpu.Device
	// asked is set once a kubelet has asked for the units.
	asked bool
	// changed is closed and replaced when the answer of ListAndWatch changes.
	changed chan struct{}
}

func newPlugin(g gpu.Device, c Config, endpoint string) *plugin {
	return &plugin{
		dev: c.Dev, endpoint: endpoint, mps: c.MPSDir, gpu: g, changed: make(chan struct{}),
		log: c.Log.With("device", g.ID(), "resource", Resource(g.UUID)),
	}
}

// update stores the present state of the GPU.
func (p *plugin) update(g gpu.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.gpu.Trouble
	p.gpu = g
	if was == g.Trouble {
		return
	}
	if g.Trouble != "" {
		p.log.Warn("GPU fails: no new work is placed on it", "trouble", g.Trouble)
	} else {
		p.log.Info("GPU works again")
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// now returns the GPU, and a channel that is closed when it changes.
func (p *plugin) now() (gpu.Device, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gpu, p.changed
}

// neverAsked reports whether no kubelet has ever asked for the units.
func (p *plugin) neverAsked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.asked
}

// GetInfo identifies the plugin to the kubelet's watcher of plugins.
func (p *plugin) GetInfo(context.Context, *registry.InfoRequest) (*registry.PluginInfo, error) {
	g, _ := p.now()
	return &registry.PluginInfo{
		Type: registry.DevicePlugin, Name: Resource(g.UUID), Endpoint: p.endpoint, SupportedVersions: []string{kubelet.Version},
	}, nil
}

// NotifyRegistrationStatus receives the kubelet's result.
func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registry.RegistrationStatus) (*registry.RegistrationStatusResponse, error) {
	if s.PluginRegistered {
		p.log.Info("the kubelet accounts for the GPU")
	} else {
		p.log.Error("the kubelet refuses the device plugin", "error", s.Error)
	}
	return &registry.RegistrationStatusResponse{}, nil
}

// GetDevicePluginOptions returns no options.
func (p *plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

// ListAndWatch sends the units of the GPU, and again whenever its health changes.
func (p *plugin) ListAndWatch(_ *kubelet.Empty, to kubelet.DevicePlugin_ListAndWatchServer) error {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	for {
		g, changed := p.now()
		health := kubelet.Healthy
		if g.Trouble != "" {
			health = kubelet.Unhealthy
		}
		var answer kubelet.ListAndWatchResponse
		for _, id := range unitIDs(g) {
			answer.Devices = append(answer.Devices, &kubelet.Device{ID: id, Health: health})
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

// Allocate returns what containers with units of the GPU need. The names are the GPU's own, so that a container with
// two GPUs gets both answers completely.
func (p *plugin) Allocate(_ context.Context, r *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	g, _ := p.now()
	known := unitIDs(g)
	var answer kubelet.AllocateResponse
	for _, c := range r.ContainerRequests {
		for _, id := range c.DevicesIds {
			if !slices.Contains(known, id) {
				return nil, status.Errorf(codes.InvalidArgument, "%s has no unit %q", Resource(g.UUID), id)
			}
		}
		name := Variable(g.UUID)
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerAllocateResponse{
			Envs:    map[string]string{name: g.UUID, name + "_UNITS": strconv.Itoa(len(c.DevicesIds)) + "/" + strconv.Itoa(len(known))},
			Devices: p.nodes(g), Mounts: p.mounts(g),
		})
	}
	return &answer, nil
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

// GetPreferredAllocation is never called: all units are equal.
func (p *plugin) GetPreferredAllocation(context.Context, *kubelet.PreferredAllocationRequest) (*kubelet.PreferredAllocationResponse, error) {
	return &kubelet.PreferredAllocationResponse{}, nil
}

// PreStartContainer is never called.
func (p *plugin) PreStartContainer(context.Context, *kubelet.PreStartContainerRequest) (*kubelet.PreStartContainerResponse, error) {
	return &kubelet.PreStartContainerResponse{}, nil
}
