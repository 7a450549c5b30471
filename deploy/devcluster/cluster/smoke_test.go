//go:build e2e

package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// devcluster is the built program, whose path the makefile gives.
func devcluster(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path := os.Getenv("DEVCLUSTER")
	if path == "" {
		t.Fatal("DEVCLUSTER does not name the devcluster program: run make e2e-kube")
	}
	command := exec.CommandContext(t.Context(), path, args...)
	command.Stderr = os.Stderr
	return command
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	output, err := devcluster(t, args...).Output()
	if err != nil {
		t.Fatalf("devcluster %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// mountPoints lists the private paths that the machine has; other clusters may have made them.
func mountPoints() []string {
	var found []string
	for _, path := range privatePaths() {
		if _, err := os.Stat(path); err == nil {
			found = append(found, path)
		}
	}
	return found
}

// nothingLeft fails the test for everything of the cluster that outlives it.
func nothingLeft(t *testing.T, c *Cluster, before []string) {
	t.Helper()
	if _, err := os.Stat(c.path(configFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cluster's folder is still there: %v", err)
	}
	tables, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		line, _ := os.ReadFile(table)
		if bytes.Contains(line, []byte(c.Dir)) {
			t.Errorf("process still runs: %s: %q", table, line)
		}
	}
	found, err := findHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	if left := groups(found, c.cgroupName()); len(left) > 0 {
		t.Errorf("control groups are left: %v", left)
	}
	if c.ownsLink() {
		t.Errorf("link %s is left", c.hostLink())
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(c.Dir)) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
	for _, path := range mountPoints() {
		mounted, err := mountedAnywhere(path)
		if err != nil {
			t.Fatal(err)
		}
		if !mounted && !slices.Contains(before, path) {
			t.Errorf("%s is left", path)
		}
	}
}

func TestPodsRunAndNothingIsLeft(t *testing.T) {
	before, dir := mountPoints(), shortDir(t)
	run(t, "up", "--dir", dir, "--kwok-nodes", "3", "--kwok-gpus", "2")
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	visitor := filepath.Join(t.TempDir(), "visitor")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", visitor, "./testdata/visitor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build visitor: %v\n%s", err, output)
	}
	run(t, "image", "build", "--dir", dir, "--name", "localhost/visitor:dev", "--binary", visitor)
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}

	t.Run("real pod", func(t *testing.T) {
		create(t, client, pod("real", "localhost/visitor:dev", NodeName))
		succeeds(t, client, "real")
		log, err := client.CoreV1().Pods("default").GetLogs("real", &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := "the API server says ok\n"; string(log) != want {
			t.Errorf("the pod says %q, not %q", log, want)
		}
	})
	t.Run("a gang finds its first", func(t *testing.T) { gang(t, c, client) })
	t.Run("kubelet killed", func(t *testing.T) {
		kubelet, err := c.readProcess(Kubelet)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(kubelet.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if !poll(patience, func() bool { return !kubelet.alive() }) {
			t.Fatal("the kubelet does not end")
		}
		if devcluster(t, "status", "--dir", dir).Run() == nil {
			t.Error("status is well without a kubelet")
		}
		run(t, "start", "--dir", dir, Kubelet)
		create(t, client, pod("after-restart", "localhost/visitor:dev", NodeName))
		succeeds(t, client, "after-restart")
		run(t, "status", "--dir", dir)
	})
	t.Run("API server stopped", func(t *testing.T) {
		run(t, "restart", "--dir", dir, APIServer)
		if !poll(time.Minute, func() bool { return apiServerReady(client)(t.Context()) == nil }) {
			t.Fatal("the API server does not come back")
		}
		if _, err := client.CoreV1().Pods("default").Get(t.Context(), "real", metav1.GetOptions{}); err != nil {
			t.Errorf("the API server has forgotten a pod: %v", err)
		}
	})
	t.Run("fake node", func(t *testing.T) { fakeNodeRecovers(t, client) })
	t.Run("fake pod with a GPU", func(t *testing.T) {
		fake := pod("fake", "nothing:dev", FakeNodeName(2))
		fake.Annotations = map[string]string{"pod-end.switchyard.dev/after": "1s"}
		fake.Spec.Containers[0].Resources.Limits = corev1.ResourceList{FakeGPUResource(1): *resource.NewQuantity(16, resource.DecimalSI)}
		create(t, client, fake)
		succeeds(t, client, "fake")
		tooMuch := pod("too-much", "nothing:dev", FakeNodeName(2))
		tooMuch.Spec.Containers[0].Resources.Limits = corev1.ResourceList{FakeGPUResource(1): *resource.NewQuantity(17, resource.DecimalSI)}
		create(t, client, tooMuch)
		follow(t, client, "too-much", func(p *corev1.Pod) bool {
			return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
			})
		})
	})

	run(t, "down", "--dir", dir)
	nothingLeft(t, c, before)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder %s is left: %v", dir, err)
	}
}

// gang shows that pods find each other by the names of a headless Service, and this machine them by a NodePort.
func gang(t *testing.T, c *Cluster, client kubernetes.Interface) {
	labels := map[string]string{"gang": "g"}
	port := corev1.ServicePort{Name: "http", Port: 8080, TargetPort: intstr.FromInt32(8080)}
	outside := port
	outside.NodePort = 30080
	for _, service := range []*corev1.Service{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "gang"},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: labels, Ports: []corev1.ServicePort{port}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "door"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: labels, Ports: []corev1.ServicePort{outside}},
		},
	} {
		if _, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first := pod("rank-0", "localhost/visitor:dev", NodeName)
	first.Labels = labels
	first.Spec.Hostname, first.Spec.Subdomain = "rank-0", "gang"
	first.Spec.Containers[0].Args = []string{"first"}
	create(t, client, first)
	follow(t, client, "rank-0", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })

	var body []byte
	reached := poll(time.Minute, func() bool {
		response, err := http.Get("http://" + c.nodeAddress() + ":30080")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, err = io.ReadAll(response.Body)
		return err == nil
	})
	if !reached || string(body) != "first" {
		t.Errorf("through the NodePort: %q", body)
	}
	second := pod("rank-1", "localhost/visitor:dev", NodeName)
	second.Spec.Containers[0].Args = []string{"ask", "rank-0.gang"}
	create(t, client, second)
	succeeds(t, client, "rank-1")
	log, err := client.CoreV1().Pods("default").GetLogs("rank-1", &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := "rank-0.gang says first <nil>\n"; string(log) != want {
		t.Errorf("the second pod says %q, not %q", log, want)
	}
}

// fakeNodeRecovers shows that kwok brings back a node that was marked as not ready.
func fakeNodeRecovers(t *testing.T, client kubernetes.Interface) {
	nodes := client.CoreV1().Nodes()
	node, err := nodes.Get(t.Context(), FakeNodeName(1), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			node.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	marked, err := nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if takesPods(marked) {
		t.Fatalf("the node was not marked: %+v", marked.Status)
	}
	back := poll(time.Minute, func() bool {
		node, err = nodes.Get(t.Context(), FakeNodeName(1), metav1.GetOptions{})
		return err == nil && takesPods(node)
	})
	if !back {
		t.Errorf("the node is not ready again (%v): %+v", err, node.Status)
	}
}

// A cluster that is killed while it comes up leaves as clean a machine as one that came up.
func TestDownAfterUpWasKilled(t *testing.T) {
	before, dir := mountPoints(), shortDir(t)
	up := devcluster(t, "up", "--dir", dir)
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	var c *Cluster
	ready := poll(2*time.Minute, func() bool {
		var err error
		c, err = Load(dir)
		if err != nil {
			return false
		}
		_, err = c.readProcess(Containerd)
		return err == nil
	})
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err == nil {
		t.Error("up ended well although it was killed")
	}
	if !ready {
		t.Fatal("containerd was never started")
	}
	run(t, "down", "--dir", dir)
	nothingLeft(t, c, before)
}

// A control plane with fake nodes alone needs neither root nor containerd.
func TestControlPlaneWithoutNode(t *testing.T) {
	dir := shortDir(t)
	run(t, "up", "--dir", dir, "--no-kubelet", "--kwok-nodes", "2")
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	fake := pod("fake", "nothing:dev", FakeNodeName(0))
	fake.Annotations = map[string]string{"pod-end.switchyard.dev/after": "0s", "pod-end.switchyard.dev/exit-code": "3"}
	create(t, client, fake)
	ended := follow(t, client, "fake", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if code := ended.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 3 {
		t.Errorf("the pod ended with %d, not 3", code)
	}
	run(t, "down", "--dir", dir)
	if c.Running() {
		t.Error("programs still run")
	}
}

// shortDir is below /tmp whatever the test's name is: the folder holds sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devcluster-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	return dir
}

func pod(name, image, node string) *corev1.Pod {
	pinned := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: image, ImagePullPolicy: corev1.PullNever}},
			Tolerations:   []corev1.Toleration{{Key: fakeAnnotation, Operator: corev1.TolerationOpExists}},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{pinned}}},
				},
			}},
		},
	}
}

func create(t *testing.T, client kubernetes.Interface, p *corev1.Pod) {
	t.Helper()
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func succeeds(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	p := follow(t, client, name, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
	if p.Status.Phase != corev1.PodSucceeded {
		t.Fatalf("pod %s: %+v", name, p.Status)
	}
}

// follow watches a pod until it is as wanted.
func follow(t *testing.T, client kubernetes.Interface, name string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	watch, err := client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	var last *corev1.Pod
	for event := range watch.ResultChan() {
		if p, ok := event.Object.(*corev1.Pod); ok {
			last = p
			if wanted(p) {
				return p
			}
		}
	}
	t.Fatalf("pod %s is not as wanted in time: %+v", name, last)
	return nil
}
