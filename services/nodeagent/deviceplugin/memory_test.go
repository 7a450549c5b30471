package deviceplugin

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// The memory of all GPUs is one resource, in GiB. A container gets units of the GPU that is booked, and none if none
// is.
func TestMemoryOfAnyGPU(t *testing.T) {
	dir := folder(t)
	r := &rack{}
	r.set(gpu.Device{Index: 0, UUID: uuid0, Memory: 8 * unit.GiB}, gpu.Device{Index: 1, UUID: uuid1, Memory: 24*unit.GiB - 1}, gpu.Device{Index: 0, Instance: 1, UUID: "MIG-1", Memory: 8 * unit.GiB})
	f := New(Config{
		Dir: dir, Dev: filepath.Join(dir, "dev"), Every: 5 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Booked: func(_ context.Context, gib int) (train.DeviceID, bool) { return "gpu:1", gib == 4 },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running conc.WaitGroup
	running.Go(func() { _ = f.Run(ctx, r.list) })
	t.Cleanup(func() { cancel(); running.Wait() })

	info, client := connect(t, filepath.Join(dir, memorySocket))
	options, err := client.GetDevicePluginOptions(within(t), &kubelet.Empty{})
	if err != nil || info.Name != train.PodMemoryResource || !options.GetPreferredAllocationAvailable {
		t.Fatalf("%+v, %+v, error %v", info, options, err)
	}
	units, err := client.ListAndWatch(within(t), &kubelet.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := units.Recv()
	if err != nil || len(answer.Devices) != 8+23 {
		t.Fatalf("%d units, error %v", len(answer.Devices), err)
	}
	var free []string
	for _, d := range answer.Devices {
		free = append(free, d.ID)
	}
	prefer := func(gib int32) ([]string, error) {
		got, err := client.GetPreferredAllocation(within(t), &kubelet.PreferredAllocationRequest{ContainerRequests: []*kubelet.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: free, AllocationSize: gib}}})
		if err != nil {
			return nil, err
		}
		return got.ContainerResponses[0].DeviceIDs, nil
	}
	ids, err := prefer(4)
	if err != nil || len(ids) != 4 || !strings.HasPrefix(ids[0], Short(uuid1)) {
		t.Fatalf("%v, error %v", ids, err)
	}
	if _, err := prefer(5); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("nothing is booked: error %v", err)
	}
	given, err := client.Allocate(within(t), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil || given.ContainerResponses[0].Envs["NVIDIA_VISIBLE_DEVICES"] != uuid1 {
		t.Errorf("%+v, error %v", given, err)
	}
	if _, err := client.Allocate(within(t), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: []string{free[0], ids[0]}}}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("units of two GPUs: error %v", err)
	}
}

// Which pods have memory of a GPU is in the record of the node, for the planner to compare with what it has booked.
func TestPodsWithMemoryOfAGPU(t *testing.T) {
	kubelet := &answers{pods: []*podresources.PodResources{
		podWith("a", "x", train.PodMemoryResource, Short(uuid0)+"-000", Short(uuid0)+"-001"), podWith("b", "y", train.PodMemoryResource, Short(uuid0)+"-002"),
	}}
	socket, _ := kubelet.serve(t)
	pods := &PodResources{Socket: socket, Attempts: func() []train.Attempt { return nil }, OnChange: func(err error) { t.Log(err) }}
	pods.Look(within(t))
	devices := []train.Device{{ID: "gpu:0", UUID: uuid0, Resource: Resource(uuid0)}, {ID: "gpu:1", UUID: uuid1, Resource: Resource(uuid1)}}
	pods.Mark(devices)
	if strings.Join(devices[0].Pods, " ") != "a/x b/y" || len(devices[1].Pods) > 0 || devices[0].HeldBy != "" {
		t.Errorf("%+v", devices)
	}
	if !pods.HasMemory("b/y") || pods.HasMemory("b/z") {
		t.Error("whether a pod has memory")
	}
}
