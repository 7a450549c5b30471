// Package dra brings GPUs to pods by dynamic resource allocation (resource.k8s.io): a pod's ResourceClaim names them,
// and scheduler and kubelet keep a GPU from being given twice. Driver is the DRA driver of this node's GPUs; Offers are
// what all drivers offer on the node. Which claim names which GPU is decided elsewhere.
package dra

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/services/nodeagent/deviceplugin"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Class is the DeviceClass of the agent's own driver, and the name of that driver.
const Class = "gpu.switchyard.dev"

// Connect makes a client of the API server: by the file that KUBECONFIG names, else by the pod's service account.
func Connect() (kubernetes.Interface, error) {
	load := rest.InClusterConfig
	if path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); path != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", path) }
	}
	config, err := load()
	if err != nil {
		return nil, fmt.Errorf("reach the API server, which has the claims of GPUs: %w", err)
	}
	config.UserAgent = "switchyard-nodeagent"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of Kubernetes: %w", err)
	}
	return client, nil
}

// Config says where the API server, the kubelet and the container runtime are.
type Config struct {
	Client kubernetes.Interface
	// Node is the node's name in Kubernetes.
	Node string
	// Root is the kubelet's root folder, CDI the folder in which the container runtime looks for devices. Both must be
	// the same for them.
	Root, CDI string
	// Dev is where device nodes are: /dev, except in tests.
	Dev string
	// MPSDir returns where processes reach the daemon of NVIDIA's Multi-Process Service; empty while none runs. It may
	// be nil.
	MPSDir func() string
	// Every is the interval at which GPUs are checked.
	Every time.Duration
	Log   *slog.Logger
}

// Driver is the DRA driver of a node's GPUs.
type Driver struct {
	config Config

	mu sync.Mutex
	// known are all GPUs that this process has seen, by the names of their devices: pods may be using those that are in
	// trouble now.
	known map[string]gpu.Device
}

// New makes a driver without GPUs.
func New(c Config) *Driver { return &Driver{config: c, known: map[string]gpu.Device{}} }

// Run offers the GPUs that gpus lists and prepares them for pods, until ctx ends.
func (d *Driver) Run(ctx context.Context, gpus func() []gpu.Device) error {
	data, registry := filepath.Join(d.config.Root, "plugins", Class), filepath.Join(d.config.Root, "plugins_registry")
	for _, dir := range []string{data, registry, d.config.CDI} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a folder of the DRA driver: %w", err)
		}
	}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(Class), kubeletplugin.KubeClient(d.config.Client), kubeletplugin.NodeName(d.config.Node),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(registry))
	if err != nil {
		return fmt.Errorf("start the DRA driver: %w", err)
	}
	defer helper.Stop()
	var last []gpu.Device
	described := ""
	for range tick.Every(ctx, d.config.Every) {
		listed := gpus()
		spec := d.see(listed)
		if spec != described {
			if err := writeSpec(d.config.CDI, spec); err != nil {
				d.config.Log.Warn("the container runtime does not know the GPUs yet", "error", err)
				continue
			}
			described = spec
		}
		if slices.Equal(listed, last) {
			continue
		}
		if err := helper.PublishResources(ctx, d.resources(listed)); err != nil {
			return fmt.Errorf("publish the GPUs: %w", err)
		}
		last = listed
	}
	return nil
}

// see takes note of the present GPUs and describes all known ones for the container runtime.
func (d *Driver) see(listed []gpu.Device) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range listed {
		d.known[deviceName(g)] = g
	}
	return spec(d.known, d.config.Dev, d.config.MPSDir)
}

// resources are the GPUs that can take new work, as one slice.
func (d *Driver) resources(listed []gpu.Device) resourceslice.DriverResources {
	var slice resourceslice.Slice
	for _, g := range listed {
		if g.Trouble == "" {
			slice.Devices = append(slice.Devices, describe(g))
		}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.config.Node: {Slices: []resourceslice.Slice{slice}}}}
}

// deviceName is the name of a GPU in its slice, and in the container runtime.
func deviceName(g gpu.Device) string { return "gpu-" + deviceplugin.Short(g.UUID) }

// The attributes and the capacity of a GPU. NVIDIA's driver gives them the same names.
const (
	attributeUUID  = "uuid"
	attributeModel = "productName"
	attributeType  = "type"
	typeGPU        = "gpu"
	capacityMemory = "memory"
)

// describe returns a GPU as its slice has it. Claims share a whole GPU by memory; a claim that asks for no memory gets
// all of it.
func describe(g gpu.Device) resourcev1.Device {
	kind := typeGPU
	if g.Instance > 0 {
		kind = "mig"
	}
	d := resourcev1.Device{Name: deviceName(g), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		attributeUUID: text(g.UUID), attributeModel: text(g.Model), attributeType: text(kind), "name": text(string(g.ID())),
	}}
	if g.Memory > 0 {
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{capacityMemory: {Value: *resource.NewQuantity(int64(g.Memory), resource.BinarySI)}}
		d.AllowMultipleAllocations = new(g.Instance == 0)
	}
	return d
}

// text is an attribute, cut to the length that one may have.
func text(s string) resourcev1.DeviceAttribute {
	s = s[:min(len(s), resourcev1.DeviceAttributeMaxValueLength)]
	return resourcev1.DeviceAttribute{StringValue: &s}
}

// PrepareResourceClaims returns what the container runtime adds to the containers of the claims. Nothing is done for a
// claim alone, so nothing is lost with this process, and there is nothing to undo.
func (d *Driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver != Class {
				continue
			}
			if _, found := d.known[r.Device]; !found {
				result.Err = fmt.Errorf("node %s has no GPU %s, or has not found it yet", d.config.Node, r.Device)
			}
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, ShareID: r.ShareID, CDIDeviceIDs: []string{cdiKind + "=" + r.Device},
			})
		}
		results[claim.UID] = result
	}
	return results, nil
}

// UnprepareResourceClaims has nothing to undo.
func (d *Driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

// HandleError reports an error of the background, such as that of an API server which is away.
func (d *Driver) HandleError(_ context.Context, err error, message string) {
	d.config.Log.Warn("GPUs may not be offered as they are", "doing", message, "error", err)
}
