package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sourcegraph/conc"
	"google.golang.org/grpc"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registry "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

// nvidia is the resource of NVIDIA's device plugin.
const nvidia = "nvidia.com/gpu"

// otherPlugin is a device plugin as NVIDIA's: it gives out whole GPUs under one resource, and prefers the last ones.
type otherPlugin struct {
	kubelet.UnimplementedDevicePluginServer
	registry.UnimplementedRegistrationServer
	endpoint string

	mu      sync.Mutex
	gpus    []string
	health  map[string]string
	changed chan struct{}
}

// startOtherPlugin serves the GPUs until the test ends.
func startOtherPlugin(t *testing.T, c *lab.Cluster, gpus ...string) *otherPlugin {
	t.Helper()
	const folder = "/var/lib/kubelet/plugins_registry"
	p := &otherPlugin{endpoint: filepath.Join(folder, "other.sock"), gpus: gpus, health: map[string]string{}, changed: make(chan struct{})}
	l, err := net.Listen("unix", c.Private(p.endpoint))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	kubelet.RegisterDevicePluginServer(server, p)
	registry.RegisterRegistrationServer(server, p)
	var serving conc.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(serving.Wait)
	t.Cleanup(server.Stop)
	return p
}

func (p *otherPlugin) GetInfo(context.Context, *registry.InfoRequest) (*registry.PluginInfo, error) {
	return &registry.PluginInfo{Type: registry.DevicePlugin, Name: nvidia, Endpoint: p.endpoint, SupportedVersions: []string{kubelet.Version}}, nil
}

func (p *otherPlugin) NotifyRegistrationStatus(context.Context, *registry.RegistrationStatus) (*registry.RegistrationStatusResponse, error) {
	return &registry.RegistrationStatusResponse{}, nil
}

func (p *otherPlugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *otherPlugin) ListAndWatch(_ *kubelet.Empty, to kubelet.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		changed := p.changed
		var answer kubelet.ListAndWatchResponse
		for _, id := range p.gpus {
			health := kubelet.Healthy
			if p.health[id] != "" {
				health = p.health[id]
			}
			answer.Devices = append(answer.Devices, &kubelet.Device{ID: id, Health: health})
		}
		p.mu.Unlock()
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

// set changes the health of a GPU.
func (p *otherPlugin) set(gpu, health string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health[gpu] = health
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *otherPlugin) GetPreferredAllocation(_ context.Context, r *kubelet.PreferredAllocationRequest) (*kubelet.PreferredAllocationResponse, error) {
	var answer kubelet.PreferredAllocationResponse
	for _, c := range r.ContainerRequests {
		ids := slices.Sorted(slices.Values(c.AvailableDeviceIDs))
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerPreferredAllocationResponse{DeviceIDs: ids[len(ids)-int(c.AllocationSize):]})
	}
	return &answer, nil
}

func (p *otherPlugin) Allocate(_ context.Context, r *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	var answer kubelet.AllocateResponse
	for _, c := range r.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(c.DevicesIds, ",")},
		})
	}
	return &answer, nil
}

// Another device plugin gives out whole GPUs under one resource, and the kubelet chooses which. A GPU then has the name
// that its job's plan uses. Jobs share no GPU, and get none that is sick or held by the pod of others.
func TestGPUsOfAnotherDevicePlugin(t *testing.T) {
	if cluster == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	plugin := startOtherPlugin(t, cluster, "GPU-a", "GPU-b", "GPU-c")
	y := newYardOn(t, cluster)
	y.until("the kubelet gives out three GPUs", func() bool {
		return y.kubectl("get", "node", "node1", "-o", `jsonpath={.status.allocatable.nvidia\.com/gpu}`) == "3"
	})
	y.agent = []string{"--device-kind=gpu", "--gpu-resource=" + nvidia}
	y.start("nodeagent")
	y.names("gpu:0 GPU-a", "gpu:1 GPU-b", "gpu:2 GPU-c")
	y.start("planner")

	const endless = 1_000_000
	y.submit("one", endless, 4, func(s *train.Spec) {
		s.MaxDevices, s.AllowSharing, s.EstimatedMemoryMiB, s.Priority = 1, true, 1<<10, new(90)
	})
	one := y.running("one", 1)
	if one.Enforcement != train.GivenWhole || one.Memory != 0 {
		t.Errorf("it has %s of %v, enforcement %q, want a whole GPU", one.Memory, one.Devices, one.Enforcement)
	}
	if got := y.gpusOf("one-1-0"); got != "1 GPU-c" {
		t.Errorf("the container has %q, want the GPU that the plugin prefers, named by the plugin", got)
	}
	y.until("the GPU is called as planned", func() bool { return slices.Contains(y.gpus(), string(one.Devices[0])+" GPU-c") })
	if out := y.describe("one"); !strings.Contains(out, "whole: the cluster gives out whole GPUs, so no job shares them") {
		t.Errorf("describe:\n%s", out)
	}

	y.pause("notebook", nvidia, 1) // gets GPU-b
	y.until("the holder in the list of nodes", func() bool {
		return strings.Contains(y.switchyard("node", "list"), "is held by pod default/notebook")
	})
	y.submit("two", endless, 4, func(s *train.Spec) { s.MinDevices, s.MaxDevices, s.Launch = 2, 2, train.LaunchPerNode })
	y.awaitReason("two", "WaitingForDevices", "is held by pod default/notebook")
	y.kubectl("delete", "pod", "notebook", "-n", "default")
	two := y.running("two", 1)
	if got := y.gpusOf("two-1-0"); got != "2 GPU-a,GPU-b" && got != "2 GPU-b,GPU-a" {
		t.Errorf("the container has %q, want two GPUs", got)
	}
	y.submit("three", endless, 4, func(s *train.Spec) { s.MaxDevices, s.AllowSharing, s.EstimatedMemoryMiB = 1, true, 1<<10 })
	y.job("three", "it waits", func(j train.Job) bool { return j.Reason == "WaitingForMemory" || j.Reason == "WaitingForDevices" })

	// A killed agent finds the same names; a sick GPU is not planned on, and its job goes on.
	y.kill("nodeagent")
	y.start("nodeagent")
	y.names(string(one.Devices[0])+" GPU-c", string(two.Devices[0])+" GPU-a", string(two.Devices[1])+" GPU-b")
	y.cancel("two")
	y.running("three", 1)
	y.cancel("three")
	plugin.set("GPU-a", kubelet.Unhealthy)
	y.until("a sick GPU is left out", func() bool { return len(y.gpus()) == 2 })
	y.submit("two-again", endless, 4, func(s *train.Spec) { s.MinDevices, s.MaxDevices = 2, 2 })
	y.job("two-again", "it waits", func(j train.Job) bool { return j.State == train.StateQueued && j.Message != "" })
	y.cancel("one")
	y.running("two-again", 1)
	y.cancel("two-again")
	y.nothingLeft()
}

// gpus lists the node's GPUs as "name id", in order.
func (y *yard) gpus() []string {
	y.t.Helper()
	node, err := y.node()
	if err != nil {
		return nil
	}
	var all []string
	for _, d := range node.Devices {
		all = append(all, fmt.Sprintf("%s %s", d.ID, d.UUID))
	}
	return slices.Sorted(slices.Values(all))
}

func (y *yard) names(want ...string) {
	y.t.Helper()
	slices.Sort(want)
	y.until(fmt.Sprintf("GPUs %v", want), func() bool { return slices.Equal(y.gpus(), want) })
}

// gpusOf returns how many GPUs a pod asks for, and what its processes see.
func (y *yard) gpusOf(pod string) string {
	y.t.Helper()
	count := y.kubectl("get", "pod", pod, "-n", y.namespace, "-o", `jsonpath={.spec.containers[0].resources.limits.nvidia\.com/gpu}`)
	variables := y.environ(pod)
	i := slices.IndexFunc(variables, func(v string) bool { return strings.HasPrefix(v, "NVIDIA_VISIBLE_DEVICES=") })
	return count + " " + strings.TrimPrefix(variables[max(i, 0)], "NVIDIA_VISIBLE_DEVICES=")
}

// environ returns the variables of a process in a pod of a first attempt.
func (y *yard) environ(pod string) (variables []string) {
	y.t.Helper()
	mark := train.MarkVariable + "=" + strings.TrimSuffix(pod, "-1-0") + "/"
	y.until("a process of "+pod, func() bool {
		environs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range environs {
			data, _ := os.ReadFile(path)
			variables = strings.Split(string(data), "\x00")
			if slices.ContainsFunc(variables, func(v string) bool { return strings.HasPrefix(v, mark) }) {
				return true
			}
		}
		return false
	})
	return variables
}

// pause runs a pod of another namespace that holds units of a resource until the test ends.
func (y *yard) pause(name, resource string, units int) {
	y.t.Helper()
	type object = map[string]any
	manifest, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "namespace": "default"}, "spec": object{
			"terminationGracePeriodSeconds": 0, "containers": []object{{
				"name": "c", "image": "localhost/switchyard/pause:dev", "imagePullPolicy": "Never", "resources": object{"limits": object{resource: units}},
			}},
		},
	})
	y.must(err)
	_, err = y.cluster.Feed(y.ctx, string(manifest), "apply", "-f", "-")
	y.must(err)
	y.t.Cleanup(func() {
		_, _ = y.cluster.Kubectl(context.Background(), "delete", "pod", name, "-n", "default", "--ignore-not-found", "--wait=false")
	})
}
