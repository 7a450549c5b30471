package deviceplugin

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// answers is a kubelet with given pods.
type answers struct {
	podresources.UnimplementedPodResourcesListerServer
	pods []*podresources.PodResources
}

func (a *answers) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: a.pods}, nil
}

// TestPodsOfOthersHoldDevices: by the resource of one GPU, or by the GPU's id at NVIDIA's plugin; jobs' own pods do not
// count, and while the kubelet is away its last answer does.
func TestPodsOfOthersHoldDevices(t *testing.T) {
	pod := func(namespace, name, resource string, ids ...string) *podresources.PodResources {
		return &podresources.PodResources{Namespace: namespace, Name: name, Containers: []*podresources.ContainerResources{
			{Name: "c", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}},
		}}
	}
	kubelet := &answers{pods: []*podresources.PodResources{
		pod("research", "notebook", "nvidia.com/gpu", "GPU-1"), pod("research", "slice", "nvidia.com/gpu.shared", "GPU-2::3"),
		pod("other", "theirs", Resource("GPU-3"), "unit-001"), pod("switchyard-jobs", "j-1-0", Resource("GPU-4"), "unit-000"), pod("plain", "web", "vendor.example/nic", "eth1"),
	}}
	socket := filepath.Join(folder(t), "kubelet.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, kubelet)
	var serving conc.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(serving.Wait)
	t.Cleanup(server.Stop)

	var troubles []error
	h := Holders{Socket: socket, Namespaces: []string{"switchyard-jobs"}, OnChange: func(err error) { troubles = append(troubles, err) }}
	held := func() []string {
		var by []string
		devices := []train.Device{{ID: "cpu:0"}}
		for _, uuid := range []string{"GPU-1", "GPU-2", "GPU-3", "GPU-4"} {
			devices = append(devices, train.Device{UUID: uuid, Resource: Resource(uuid)})
		}
		h.Mark(within(t), devices)
		for _, d := range devices {
			by = append(by, d.HeldBy)
		}
		return by
	}
	want := []string{"", "pod research/notebook", "pod research/slice", "pod other/theirs", ""}
	if diff := cmp.Diff(want, held()); diff != "" || len(troubles) > 0 {
		t.Errorf("%s, troubles %v", diff, troubles)
	}
	server.Stop()
	if diff := cmp.Diff(want, held()); diff != "" || len(troubles) != 1 || troubles[0] == nil {
		t.Errorf("without the kubelet: %s, troubles %v", diff, troubles)
	}
}
