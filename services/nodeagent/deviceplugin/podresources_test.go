package deviceplugin

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// answers is a kubelet with given pods, and GPUs of another plugin.
type answers struct {
	podresources.UnimplementedPodResourcesListerServer
	pods    []*podresources.PodResources
	offered []string
}

func (a *answers) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: a.pods}, nil
}

func (a *answers) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: "nvidia.com/gpu", DeviceIds: a.offered}, {ResourceName: "vendor.example/nic", DeviceIds: []string{"eth0"}},
	}}, nil
}

// serve answers at a socket until the test, or the returned function, ends it.
func (a *answers) serve(t *testing.T) (socket string, stop func()) {
	t.Helper()
	socket = filepath.Join(folder(t), "kubelet.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, a)
	var serving conc.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(serving.Wait)
	t.Cleanup(server.Stop)
	return socket, server.Stop
}

func podWith(namespace, name, resource string, ids ...string) *podresources.PodResources {
	return &podresources.PodResources{Namespace: namespace, Name: name, Containers: []*podresources.ContainerResources{
		{Name: "c", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}},
	}}
}

func claiming(namespace, name, device string) *podresources.PodResources {
	claim := &podresources.DynamicResource{ClaimResources: []*podresources.ClaimResource{{DriverName: "gpu.nvidia.com", PoolName: "n1", DeviceName: device}}}
	return &podresources.PodResources{Namespace: namespace, Name: name, Containers: []*podresources.ContainerResources{{Name: "c", DynamicResources: []*podresources.DynamicResource{claim}}}}
}

// TestPodsOfOthersHoldDevices: by the resource of one GPU, by the GPU's id at NVIDIA's plugin, or by a claim; jobs' own
// pods do not count, other pods in their namespaces do. While the kubelet is away its last answer counts.
func TestPodsOfOthersHoldDevices(t *testing.T) {
	kubelet := &answers{pods: []*podresources.PodResources{
		podWith("research", "notebook", "nvidia.com/gpu", "GPU-1"), podWith("research", "slice", "nvidia.com/gpu.shared", "GPU-2::3"),
		podWith("other", "theirs", Resource("GPU-3"), "unit-001"), podWith("switchyard-jobs", "j-1-0", Resource("GPU-4"), "unit-000"), podWith("plain", "web", "vendor.example/nic", "eth1"),
		podWith("switchyard-jobs", "stranger-1-0", "nvidia.com/gpu", "GPU-5"), podWith("switchyard-jobs", "j", "nvidia.com/gpu", "GPU-6"), claiming("research", "claims", "gpu-7"),
	}}
	socket, stop := kubelet.serve(t)
	var troubles []error
	pods := &PodResources{
		Socket: socket, Namespaces: []string{"switchyard-jobs"}, OnChange: func(err error) { troubles = append(troubles, err) },
		Attempts: func() []train.Attempt { return []train.Attempt{{Job: "j", Number: 2, Namespace: "switchyard-jobs"}} },
		UUID:     func(driver, pool, device string) string { return strings.ToUpper(driver[:3]) + device[len("gpu"):] },
	}
	held := func(resource func(uuid string) string) []string {
		var by []string
		devices := []train.Device{{ID: "cpu:0"}}
		for _, uuid := range []string{"GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7"} {
			devices = append(devices, train.Device{UUID: uuid, Resource: resource(uuid)})
		}
		pods.Look(within(t))
		pods.Mark(devices)
		for _, d := range devices {
			by = append(by, d.HeldBy)
		}
		return by
	}
	theirs := []string{"pod switchyard-jobs/stranger-1-0", "pod switchyard-jobs/j", "pod research/claims"}
	want := append([]string{"", "pod research/notebook", "pod research/slice", "pod other/theirs", ""}, theirs...)
	if diff := cmp.Diff(want, held(Resource)); diff != "" || len(troubles) > 0 {
		t.Errorf("%s, troubles %v", diff, troubles)
	}
	// A resource that all GPUs have says nothing of one.
	if diff := cmp.Diff(append([]string{"", "pod research/notebook", "pod research/slice", "", ""}, theirs...), held(func(string) string { return "nvidia.com/gpu" })); diff != "" {
		t.Error(diff)
	}
	stop()
	if diff := cmp.Diff(want, held(Resource)); diff != "" || len(troubles) != 1 || troubles[0] == nil {
		t.Errorf("without the kubelet: %s, troubles %v", diff, troubles)
	}
}

// TestAGPUHasTheNameThatThePlanHasForIt: the kubelet has given pods other GPUs than the plan thought.
func TestAGPUHasTheNameThatThePlanHasForIt(t *testing.T) {
	kubelet := &answers{offered: []string{"GPU-d", "GPU-b", "GPU-a::0", "GPU-a::1"}, pods: []*podresources.PodResources{
		podWith("jobs", train.PodName("one", 2, 0), "nvidia.com/gpu", "GPU-d"),
		podWith("jobs", train.PodName("two", 1, 1), "nvidia.com/gpu", "GPU-a::1"), podWith("jobs", train.PodName("two", 1, 0), "nvidia.com/gpu", "GPU-b"),
		podWith("jobs", train.PodName("over", 1, 0), "nvidia.com/gpu", "GPU-c"),
	}}
	socket, _ := kubelet.serve(t)
	pods := &PodResources{Socket: socket, Namespaces: []string{"jobs"}, Resource: "nvidia.com/gpu", OnChange: func(err error) { t.Error(err) }}
	live := []train.Attempt{
		{Job: "one", Number: 2, Namespace: "jobs", Devices: []train.DeviceID{"gpu:0"}}, {Job: "two", Number: 1, Namespace: "jobs", Devices: []train.DeviceID{"gpu:2", "gpu:1"}},
	}
	names := func(r gpu.Reader) map[string]string {
		t.Helper()
		pods.Look(within(t))
		devices, err := pods.GivenOut(r, func() []train.Attempt { return live }).Devices()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, d := range devices {
			all[string(d.ID())] = d.UUID + " " + strconv.Itoa(d.Index) + " " + d.Trouble
		}
		return all
	}
	driver := &rack{}
	driver.set(gpu.Device{Index: 0, UUID: "GPU-a"}, gpu.Device{Index: 1, UUID: "GPU-b"}, gpu.Device{Index: 2, UUID: "GPU-c"}, gpu.Device{Index: 3, UUID: "GPU-d"})
	want := map[string]string{"gpu:0": "GPU-d 3 ", "gpu:1": "GPU-a 0 ", "gpu:2": "GPU-b 1 ", "gpu:3": "GPU-c 2 the kubelet does not offer it as nvidia.com/gpu"}
	if diff := cmp.Diff(want, names(driver)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// The agent cannot read the GPUs: there are those that the kubelet has ever offered.
	want = map[string]string{"gpu:0": "GPU-d 2 ", "gpu:1": "GPU-a 0 ", "gpu:2": "GPU-b 1 "}
	if diff := cmp.Diff(want, names(pods)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	kubelet.offered, live = []string{"GPU-0", "GPU-a", "GPU-d"}, nil
	want = map[string]string{"gpu:0": "GPU-a 0 ", "gpu:1": "GPU-b 1 the kubelet does not offer it as nvidia.com/gpu", "gpu:2": "GPU-d 2 ", "gpu:3": "GPU-0 3 "}
	if diff := cmp.Diff(want, names(pods)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
