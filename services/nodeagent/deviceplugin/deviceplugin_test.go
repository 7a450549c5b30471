package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registry "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

const (
	uuid0 = "GPU-5a1f0b3c-77d2-4a0e-9f10-0c6b2d1e8a44"
	uuid1 = "GPU-9b20aa11-0000-4a0e-9f10-0c6b2d1e8a45"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// rack is the GPUs as the agent sees them.
type rack struct {
	mu   sync.Mutex
	gpus []gpu.Device
}

func (r *rack) set(gpus ...gpu.Device) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gpus = gpus
}

func (r *rack) list() []gpu.Device {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.gpus)
}

// Devices and Sample make the rack a reader.
func (r *rack) Devices() ([]gpu.Device, error) { return r.list(), nil }

func (r *rack) Sample(int) (gpu.Sample, error) { return gpu.Sample{}, nil }

// folder is short enough for sockets.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serve runs the plugins; the returned function stops them.
func serve(t *testing.T, r *rack, dir string, classic bool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := New(Config{
		Dir: dir, Classic: classic, Dev: filepath.Join(dir, "dev"), Every: 5 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	var running conc.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx, r.list); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	for !ok() {
		if ctx.Err() != nil {
			t.Fatalf("%s: never", what)
		}
		tick.Pause(ctx, time.Millisecond)
	}
}

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// connect does what a kubelet's watcher of plugins does with a socket that it finds.
func connect(t *testing.T, path string) (*registry.PluginInfo, kubelet.DevicePluginClient) {
	t.Helper()
	eventually(t, path, func() bool { return identify(path) != fileID{} })
	info, err := registry.NewRegistrationClient(dial(t, path)).GetInfo(within(t), &registry.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registry.NewRegistrationClient(dial(t, path)).NotifyRegistrationStatus(within(t), &registry.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatal(err)
	}
	return info, kubelet.NewDevicePluginClient(dial(t, info.Endpoint))
}

// health counts healthy and all units of the next answer.
func health(t *testing.T, units kubelet.DevicePlugin_ListAndWatchClient) (healthy, all int) {
	t.Helper()
	answer, err := units.Recv()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, d := range answer.Devices {
		ids[d.ID] = true
		if d.Health == kubelet.Healthy {
			healthy++
		}
	}
	return healthy, len(ids)
}

func TestNames(t *testing.T) {
	for uuid, want := range map[string]string{
		uuid0: "switchyard.dev/gpu-5a1f0b3c77d2",
		"SIM-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0": "switchyard.dev/gpu-0f1e2d3c4b5a",
		"MIG-GPU-5a1f0b3c/1/0":                     "switchyard.dev/gpu-f7807f39d50a",
		"":                                         "switchyard.dev/gpu-e3b0c44298fc",
	} {
		if got := Resource(uuid); got != want {
			t.Errorf("%s: %s, want %s", uuid, got, want)
		}
	}
	for memory, want := range map[unit.Bytes]int{0: 16, 8 * unit.GiB: 16, 24 * unit.GiB: 24, 80*unit.GiB - 1: 79} {
		if got := Units(memory); got != want {
			t.Errorf("%s: %d units, want %d", memory, got, want)
		}
	}
}

func TestAKubeletFindsTwoGPUsAndTheirHealth(t *testing.T) {
	dir := folder(t)
	first, second := gpu.Device{Index: 0, UUID: uuid0, Memory: 8 * unit.GiB}, gpu.Device{Index: 1, UUID: uuid1, Memory: 24 * unit.GiB}
	r := &rack{}
	r.set(first, second)
	old := filepath.Join(dir, socketName("GPU-that-was-taken-out"))
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, r, dir, false)
	path := filepath.Join(dir, socketName(uuid1))
	info, client := connect(t, path)
	want := &registry.PluginInfo{Type: "DevicePlugin", Name: Resource(uuid1), Endpoint: path, SupportedVersions: []string{"v1beta1"}}
	if diff := cmp.Diff(want, info, messages()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if other, _ := connect(t, filepath.Join(dir, socketName(uuid0))); other.Name != Resource(uuid0) {
		t.Errorf("%+v", other)
	}
	units, err := client.ListAndWatch(within(t), &kubelet.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	sick := second
	sick.Trouble = "it smokes"
	for _, step := range []struct {
		name    string
		gpus    []gpu.Device
		healthy int
	}{
		{"well", []gpu.Device{first, second}, 24},
		{"in trouble", []gpu.Device{first, sick}, 0},
		{"well again", []gpu.Device{first, second}, 24},
		{"gone", []gpu.Device{first}, 0},
		{"back", []gpu.Device{second, first}, 24},
	} {
		r.set(step.gpus...)
		if healthy, all := health(t, units); healthy != step.healthy || all != 24 {
			t.Errorf("%s: %d of %d units are healthy, want %d of 24", step.name, healthy, all, step.healthy)
		}
	}
	if identify(old) != (fileID{}) {
		t.Error("the socket of a GPU that is gone stays")
	}
}

func TestAllocate(t *testing.T) {
	dir := folder(t)
	for _, name := range []string{"nvidia3", "nvidiactl", "nvidia-uvm"} {
		path := filepath.Join(dir, "dev", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &rack{}
	r.set(gpu.Device{Index: 0, UUID: uuid0, Path: "/dev/nvidia3"}, gpu.Device{Index: 1, UUID: uuid1, Simulated: true})
	serve(t, r, dir, false)
	ask := func(uuid string, ids ...string) (*kubelet.AllocateResponse, error) {
		_, client := connect(t, filepath.Join(dir, socketName(uuid)))
		return client.Allocate(within(t), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: ids}}})
	}
	real, err := ask(uuid0, "5a1f0b3c77d2-000", "5a1f0b3c77d2-015")
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string) *kubelet.DeviceSpec {
		return &kubelet.DeviceSpec{ContainerPath: "/dev/" + name, HostPath: filepath.Join(dir, "dev", name), Permissions: "rw"}
	}
	want := &kubelet.AllocateResponse{ContainerResponses: []*kubelet.ContainerAllocateResponse{{
		Envs:    map[string]string{"SWITCHYARD_JOB_GPU_5A1F0B3C77D2": uuid0, "SWITCHYARD_JOB_GPU_5A1F0B3C77D2_UNITS": "2/16"},
		Devices: []*kubelet.DeviceSpec{node("nvidia3"), node("nvidiactl"), node("nvidia-uvm")},
	}}}
	if diff := cmp.Diff(want, real, messages()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	simulated, err := ask(uuid1, "9b20aa110000-007")
	if err != nil || len(simulated.ContainerResponses) != 1 || len(simulated.ContainerResponses[0].Devices) != 0 {
		t.Fatalf("%+v, error %v", simulated, err)
	}
	for name := range simulated.ContainerResponses[0].Envs {
		if _, both := real.ContainerResponses[0].Envs[name]; both {
			t.Errorf("%s is in the answers for both GPUs: a container with both would get one of them at random", name)
		}
	}
	if _, err := ask(uuid1, "5a1f0b3c77d2-000"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a unit of another GPU: error %v", err)
	}
}

// A client that asks a plugin for a device learns how to open it: the kubelet alone may.
func TestASocketIsRoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin.sock")
	l, err := listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s, %v", info.Mode(), err)
	}
}

func TestASocketThatIsRemovedIsMadeAnew(t *testing.T) {
	dir := folder(t)
	r := &rack{}
	r.set(gpu.Device{UUID: uuid0})
	path := filepath.Join(dir, socketName(uuid0))
	// A killed process leaves its socket behind.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	stop := serve(t, r, dir, false)
	eventually(t, "the first socket answers", func() bool {
		_, err := registry.NewRegistrationClient(dial(t, path)).GetInfo(within(t), &registry.InfoRequest{})
		return err == nil
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	connect(t, path)
	stop()
	if identify(path) != (fileID{}) {
		t.Error("the socket outlives its agent")
	}
}

// registrar is the classic side of a kubelet: it takes registrations at kubelet.sock.
type registrar struct {
	kubelet.UnimplementedRegistrationServer
	came chan *kubelet.RegisterRequest
}

func (d *registrar) Register(_ context.Context, r *kubelet.RegisterRequest) (*kubelet.Empty, error) {
	d.came <- r
	return &kubelet.Empty{}, nil
}

// open starts a kubelet's registrar in a folder, as a kubelet does: it removes the sockets of plugins first.
func (d *registrar) open(t *testing.T, dir string) (shut func()) {
	t.Helper()
	left, _ := filepath.Glob(filepath.Join(dir, "*.sock"))
	for _, path := range left {
		_ = os.Remove(path)
	}
	l, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	kubelet.RegisterRegistrationServer(server, d)
	var serving conc.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	return func() { server.Stop(); serving.Wait() }
}

func TestTheClassicFolderOverRestartsOfTheKubelet(t *testing.T) {
	dir := folder(t)
	r := &rack{}
	r.set(gpu.Device{UUID: uuid0, Memory: 16 * unit.GiB})
	d := &registrar{came: make(chan *kubelet.RegisterRequest, 64)}
	serve(t, r, dir, true)
	for start := range 3 {
		shut := d.open(t, dir)
		ctx := within(t)
		select {
		case got := <-d.came:
			want := &kubelet.RegisterRequest{Version: "v1beta1", Endpoint: socketName(uuid0), ResourceName: Resource(uuid0), Options: &kubelet.DevicePluginOptions{}}
			if diff := cmp.Diff(want, got, messages()); diff != "" {
				t.Errorf("start %d (-want +got)\n%s", start, diff)
			}
			// The kubelet answers a registration by connecting to the socket that it names.
			var units kubelet.DevicePlugin_ListAndWatchClient
			eventually(t, fmt.Sprintf("start %d: units are sent", start), func() bool {
				var err error
				units, err = kubelet.NewDevicePluginClient(dial(t, filepath.Join(dir, got.Endpoint))).ListAndWatch(ctx, &kubelet.Empty{})
				if err != nil {
					return false
				}
				answer, err := units.Recv()
				return err == nil && len(answer.Devices) == 16 && strings.HasPrefix(answer.Devices[0].ID, "5a1f0b3c77d2-")
			})
		case <-ctx.Done():
			t.Fatalf("start %d: no registration", start)
		}
		shut()
	}
}

// TestClientsOfTheMultiProcessService get its folder, and the memory that they share with it, while its daemon runs;
// GPUs that do not use it get neither.
func TestClientsOfTheMultiProcessService(t *testing.T) {
	dir := ""
	c := Config{MPSDir: func() string { return dir }, Log: slog.New(slog.DiscardHandler)}
	mounts := func(g gpu.Device) []*kubelet.Mount {
		g.UUID = uuid0
		p := newPlugin(Resource(uuid0), func(g gpu.Device) int { return Units(g.Memory) }, c, "")
		p.update(g)
		answer, err := p.Allocate(t.Context(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: []string{"5a1f0b3c77d2-000"}}}})
		if err != nil {
			t.Fatal(err)
		}
		return answer.ContainerResponses[0].Mounts
	}
	if got := mounts(gpu.Device{}); got != nil {
		t.Errorf("without a daemon: %v", got)
	}
	dir = "/run/mps"
	want := []*kubelet.Mount{{ContainerPath: "/run/mps", HostPath: "/run/mps"}, {ContainerPath: "/dev/shm", HostPath: "/dev/shm"}}
	if diff := cmp.Diff(want, mounts(gpu.Device{}), messages()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, g := range []gpu.Device{{Simulated: true}, {Instance: 1}} {
		if got := mounts(g); got != nil {
			t.Errorf("%+v: %v", g, got)
		}
	}
}

// messages compares the messages of the kubelet's APIs by their fields.
func messages() cmp.Option {
	return cmpopts.IgnoreUnexported(registry.PluginInfo{}, kubelet.AllocateResponse{}, kubelet.ContainerAllocateResponse{}, kubelet.DeviceSpec{},
		kubelet.Mount{}, kubelet.RegisterRequest{}, kubelet.DevicePluginOptions{})
}
