package jobs

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

// ownClass is the DeviceClass of the agent's own driver, as the manifests have it.
const ownClass = "../../../deploy/k8s/components/dra/deviceclass.yaml"

// claims returns the device of each claim that pods of jobs and others have, by the claim's name.
func (y *yard) claims(namespace string) map[string]string {
	y.t.Helper()
	all := map[string]string{}
	list := y.kubectl("get", "resourceclaims", "-n", namespace, "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.allocation.devices.results[*].device}{"\n"}{end}`)
	for line := range strings.Lines(list) {
		name, device, _ := strings.Cut(strings.TrimSpace(line), "=")
		all[name] = device
	}
	return all
}

// offered returns the name in its ResourceSlice of each device of the node.
func (y *yard) offered(driver string) map[train.DeviceID]string {
	y.t.Helper()
	node, err := y.node()
	y.must(err)
	all := map[train.DeviceID]string{}
	list := y.kubectl("get", "resourceslices", "--field-selector=spec.driver="+driver, "-o",
		`jsonpath={range .items[*].spec.devices[*]}{.name}={.attributes.uuid.string}{"\n"}{end}`)
	for line := range strings.Lines(list) {
		name, uuid, _ := strings.Cut(strings.TrimSpace(line), "=")
		if i := slices.IndexFunc(node.Devices, func(d train.Device) bool { return d.UUID == uuid }); i >= 0 {
			all[node.Devices[i].ID] = name
		}
	}
	return all
}

// hasCDI checks what the container runtime adds to a container for its GPU. Containerd does so from 1.7 on, and
// Debian's is older: there only the description of the GPUs is checked.
func (y *yard) hasCDI(pod string) {
	y.t.Helper()
	node, err := y.node()
	y.must(err)
	described, err := os.ReadFile(y.cluster.Private("/run/cdi/switchyard.dev-gpu.json"))
	y.must(err)
	variable := "=" + node.Devices[0].UUID
	if !strings.Contains(string(described), variable+`"`) {
		y.t.Errorf("the container runtime reads %s", described)
	}
	runtime := y.kubectl("get", "node", "node1", "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}")
	if strings.HasPrefix(runtime, "containerd://1.6.") {
		y.t.Logf("%s knows no CDI", runtime)
		return
	}
	if environ := y.environ(pod); !slices.ContainsFunc(environ, func(v string) bool {
		return strings.HasPrefix(v, "SWITCHYARD_JOB_GPU_") && strings.HasSuffix(v, variable)
	}) {
		y.t.Errorf("the container of %s has %v", pod, environ)
	}
}

// stranger is the name of a pod of another namespace, and of its claim.
func (y *yard) stranger() string { return "stranger-" + y.namespace }

// strangerClaims runs that pod with a device of a class until the test ends.
func (y *yard) strangerClaims(class string) {
	y.t.Helper()
	manifest := strings.NewReplacer("CLASS", class, "NAME", y.stranger()).Replace(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME, namespace: default}
spec: {devices: {requests: [{name: any, exactly: {deviceClassName: CLASS}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  resourceClaims: [{name: any, resourceClaimName: NAME}]
  containers: [{name: c, image: "localhost/switchyard/pause:dev", imagePullPolicy: Never, resources: {claims: [{name: any}]}}]
`)
	_, err := y.cluster.Feed(y.ctx, manifest, "apply", "-f", "-")
	y.must(err)
	y.t.Cleanup(func() {
		_, _ = y.cluster.Kubectl(context.Background(), "delete", "pod/"+y.stranger(), "resourceclaim/"+y.stranger(), "-n", "default", "--ignore-not-found", "--timeout=1m")
	})
}

// Pods claim the GPUs that the plan names from the agent's own driver. Jobs share a GPU by memory, no GPU is given
// twice, and claims outlive a killed agent.
func TestPodsClaimTheirGPUs(t *testing.T) {
	if cluster == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	const class, endless = "gpu.switchyard.dev", 1_000_000
	t.Setenv("KUBECONFIG", cluster.Kubeconfig())
	y := newYardOn(t, cluster)
	y.kubectl("apply", "-f", ownClass)
	y.agent = append(y.agent, "--gpu-class="+class)
	y.start("nodeagent")
	y.until("the driver offers two GPUs that claims may share", func() bool {
		node, err := y.node()
		return err == nil && len(node.Devices) == 2 && node.Devices[0].Class == class && node.Devices[0].Enforcement == train.EnforcedByAdvice && len(y.offered(class)) == 2
	})
	device := y.offered(class)
	if got := y.kubectl("get", "resourceslices", "--field-selector=spec.driver="+class, "-o",
		`jsonpath={.items[*].spec.devices[0]['capacity.memory.value','attributes.type.string','attributes.productName.string','attributes.name.string']}`); got != "16Gi gpu simulated gpu:0" {
		t.Errorf("the driver says %q of gpu:0", got)
	}

	y.opensToNobody("/var/lib/kubelet/plugins/"+class, "/var/lib/kubelet/plugins_registry")

	one := func(s *train.Spec) { s.MaxDevices = 1 }
	y.submit("whole", endless, 4, one)
	y.plan(on("whole", "gpu:1"))
	y.running("whole", 1)
	uid := y.kubectl("get", "pod", "whole-1-0", "-n", y.namespace, "-o", "jsonpath={.metadata.uid}")

	// Without the agent nothing is prepared, and what runs goes on. It comes back, and so do its GPUs.
	y.kill("nodeagent")
	part := func(job train.JobID, gib int64) train.Allocation {
		a := on(job, "gpu:0")
		a.Memory = unit.Bytes(gib) * unit.GiB
		return a
	}
	sharing := func(s *train.Spec) { s.MaxDevices, s.AllowSharing, s.EstimatedMemoryMiB = 1, true, 8<<10 }
	y.submit("large", endless, 4, sharing)
	y.submit("small", endless, 4, sharing)
	y.plan(on("whole", "gpu:1"), part("large", 10), part("small", 6))
	y.until("pods that wait for the driver", func() bool {
		return strings.Contains(y.kubectl("get", "events", "-n", y.namespace, "-o", "jsonpath={.items[*].reason}"), "FailedPrepareDynamicResources")
	})
	y.start("nodeagent")
	y.running("large", 1)
	y.running("small", 1)
	want := map[string]string{"whole-1-0": device["gpu:1"], "large-1-0": device["gpu:0"], "small-1-0": device["gpu:0"]}
	if got := y.claims(y.namespace); !maps.Equal(got, want) {
		t.Errorf("claims have %v, want %v", got, want)
	}
	y.hasCDI("large-1-0")
	if again := y.kubectl("get", "pod", "whole-1-0", "-n", y.namespace, "-o", "jsonpath={.metadata.uid}"); again != uid {
		t.Error("the pod of whole did not outlive the agent")
	}
	if parts := y.kubectl("get", "resourceclaim", "large-1-0", "small-1-0", "-n", y.namespace, "-o",
		"jsonpath={.items[*].status.allocation.devices.results[0].consumedCapacity.memory}"); parts != "10Gi 6Gi" {
		t.Errorf("the parts of gpu:0 are %s", parts)
	}

	// All is given out, so a stranger waits; what he gets then is not planned on.
	y.strangerClaims(class)
	y.until("the scheduler refuses the stranger", func() bool {
		return strings.Contains(y.kubectl("get", "pod", y.stranger(), "-n", "default", "-o", "jsonpath={.status.conditions[*].message}"), "cannot allocate all claims")
	})
	y.cancel("whole")
	y.until("the stranger has the GPU that became free", func() bool { return y.claims("default")[y.stranger()] == device["gpu:1"] })
	y.until("the holder in the list of nodes", func() bool {
		return strings.Contains(y.switchyard("node", "list"), "is held by pod default/"+y.stranger())
	})
	y.cancel("large")
	y.cancel("small")
	y.nothingLeft()
}

// opensToNobody checks that another user of the node reaches no socket below folders of the kubelet.
func (y *yard) opensToNobody(folders ...string) {
	y.t.Helper()
	list, err := y.cluster.Exec("find", append(folders, "-type", "s")...).Output()
	y.must(err)
	sockets := strings.Fields(string(list))
	if len(sockets) < len(folders) {
		y.t.Errorf("sockets of the driver: %q", sockets)
	}
	for _, socket := range sockets {
		if err := y.cluster.Exec("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "test", "-w", socket).Run(); err == nil {
			y.t.Errorf("nobody may connect to %s", socket)
		}
	}
}

// otherDriver is a DRA driver as NVIDIA's: it offers whole GPUs by their UUIDs.
type otherDriver struct{ helper *kubeletplugin.Helper }

const otherName = "gpu.nvidia.com"

func startOtherDriver(t *testing.T, c *lab.Cluster) *otherDriver {
	t.Helper()
	config, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const kubelet = "/var/lib/kubelet"
	data := filepath.Join(kubelet, "plugins", otherName)
	if err := os.MkdirAll(c.Private(data), 0o755); err != nil {
		t.Fatal(err)
	}
	// The node has folders of its own there.
	privately := func(ctx context.Context, path string) (net.Listener, error) {
		_ = os.Remove(c.Private(path))
		return (&net.ListenConfig{}).Listen(ctx, "unix", c.Private(path))
	}
	d := &otherDriver{}
	d.helper, err = kubeletplugin.Start(context.Background(), d, kubeletplugin.DriverName(otherName), kubeletplugin.KubeClient(client), kubeletplugin.NodeName("node1"),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.PluginListener(privately), kubeletplugin.RegistrarListener(privately))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.helper.Stop)
	return d
}

// offer publishes GPUs.
func (d *otherDriver) offer(t *testing.T, uuids ...string) {
	t.Helper()
	var slice resourceslice.Slice
	for i, uuid := range uuids {
		slice.Devices = append(slice.Devices, resourcev1.Device{
			Name: fmt.Sprintf("gpu-%d", len(uuids)-i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"uuid": {StringValue: &uuid}, "type": {StringValue: new("gpu")}, "productName": {StringValue: new("NVIDIA H100")},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
		})
	}
	if err := d.helper.PublishResources(t.Context(), resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{"node1": {Slices: []resourceslice.Slice{slice}}}}); err != nil {
		t.Fatal(err)
	}
}

func (d *otherDriver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		var result kubeletplugin.PrepareResult
		for _, r := range c.Status.Allocation.Devices.Results {
			result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device})
		}
		results[c.UID] = result
	}
	return results, nil
}

func (d *otherDriver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, c := range claims {
		results[c.UID] = nil
	}
	return results, nil
}

func (d *otherDriver) HandleError(context.Context, error, string) {}

// Another DRA driver offers whole GPUs: the executor claims the planner's GPU from it by its UUID. A GPU that the
// driver withdraws, or that the pod of others has claimed, is not planned on.
func TestGPUsOfAnotherDRADriver(t *testing.T) {
	if cluster == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	const endless = 1_000_000
	t.Setenv("KUBECONFIG", cluster.Kubeconfig())
	driver := startOtherDriver(t, cluster)
	driver.offer(t, "GPU-a", "GPU-b", "GPU-c")
	y := newYardOn(t, cluster)
	y.apply(`{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.nvidia.com}, spec: {selectors: [{cel: {expression: 'device.driver == "gpu.nvidia.com"'}}]}}`)
	y.agent = []string{"--device-kind=gpu", "--gpu-class=" + otherName}
	y.start("nodeagent")
	y.names("gpu:0 GPU-c", "gpu:1 GPU-b", "gpu:2 GPU-a")
	if node, err := y.node(); err != nil || node.Devices[0].Memory != 80*unit.GiB || node.Devices[0].Model != "NVIDIA H100" {
		t.Errorf("the node has %+v, error %v", node.Devices, err)
	}
	y.start("planner")

	y.submit("one", endless, 4, func(s *train.Spec) {
		s.MaxDevices, s.AllowSharing, s.EstimatedMemoryMiB, s.Priority = 1, true, 1<<10, new(90)
	})
	one := y.running("one", 1)
	if one.Enforcement != train.GivenWhole || one.Memory != 0 {
		t.Errorf("it has %s of %v, enforcement %q, want a whole GPU", one.Memory, one.Devices, one.Enforcement)
	}
	device := y.offered(otherName)
	if got := y.claims(y.namespace)["one-1-0"]; got != device[one.Devices[0]] {
		t.Errorf("it has %s, planned was %s, which is %s", got, one.Devices[0], device[one.Devices[0]])
	}
	y.strangerClaims(otherName)
	y.until("the holder in the list of nodes", func() bool {
		return strings.Contains(y.switchyard("node", "list"), "is held by pod default/"+y.stranger())
	})
	y.submit("two", endless, 4, func(s *train.Spec) { s.MinDevices, s.MaxDevices, s.Launch = 2, 2, train.LaunchPerNode })
	y.awaitReason("two", "WaitingForDevices", "is held by pod default/"+y.stranger())
	y.kill("nodeagent")
	y.kubectl("delete", "pod", y.stranger(), "-n", "default")
	y.start("nodeagent")
	two := y.running("two", 1)
	if got, want := strings.Fields(y.claims(y.namespace)["two-1-0"]), []string{device[two.Devices[0]], device[two.Devices[1]]}; !slices.Equal(got, want) {
		t.Errorf("the claim of two has %v, want %v", got, want)
	}
	y.cancel("two")
	driver.offer(t, "GPU-a", "GPU-b")
	y.until("a GPU that is withdrawn is left out", func() bool { return len(y.gpus()) == 2 })
	y.cancel("one")
	y.nothingLeft()
}
