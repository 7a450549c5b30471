package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sourcegraph/conc/pool"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// What marks the nodes that kwok plays. Nothing but pods that tolerate the taint lands there by accident.
const (
	fakeAnnotation = "kwok.x-k8s.io/node"
	fakeLabel      = "type"
	fakeValue      = "kwok"
)

// FakeNodeName is the name of a node that kwok plays, counted from 0.
func FakeNodeName(index int) string { return fmt.Sprintf("kwok-%d", index) }

// FakeGPUResource is the extended resource of a fake node's GPU, counted from 0; every fake node has the same names.
func FakeGPUResource(gpu int) corev1.ResourceName {
	return corev1.ResourceName(fmt.Sprintf("switchyard.dev/gpu-kwok-%d", gpu))
}

func (c *Cluster) kwokArguments() []string {
	return []string{
		kwokExecutable(c.Executable),
		"--kubeconfig", c.path(programKubeconfig(Kwok)),
		"--config", c.path(confDir, "kwok.yaml"),
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector", fakeAnnotation + "=fake",
		"--node-lease-duration-seconds", "40",
		"--cidr", "10.206.0.1/16",
		"--server-address", net.JoinHostPort(c.Address, strconv.Itoa(c.Ports.Kwok)),
	}
}

// kwokExecutable is the kwok beside the executable, or the one on PATH.
func kwokExecutable(executable string) string {
	beside := filepath.Join(filepath.Dir(executable), Kwok)
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	if found, err := exec.LookPath(Kwok); err == nil {
		return found
	}
	return ""
}

// startFakeNodes registers the fake nodes and starts kwok, which plays their kubelets.
func (c *Cluster) startFakeNodes(ctx context.Context, progress io.Writer) error {
	if c.FakeNodes == 0 {
		return nil
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := c.startPrograms(Kwok); err != nil {
		return err
	}
	if err := c.registerFakeNodes(ctx, client); err != nil {
		return err
	}
	wanted := c.FakeNodes
	if c.Node {
		wanted++
	}
	return c.await(ctx, progress, fmt.Sprintf("%d fake nodes", c.FakeNodes), 5*time.Minute, nodesReady(client, wanted))
}

func (c *Cluster) registerFakeNodes(ctx context.Context, client kubernetes.Interface) error {
	const parallel = 16
	work := pool.New().WithContext(ctx).WithMaxGoroutines(parallel).WithCancelOnError()
	for index := range c.FakeNodes {
		work.Go(func(ctx context.Context) error {
			if _, err := client.CoreV1().Nodes().Create(ctx, c.fakeNode(index), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("register fake node %d: %w", index, err)
			}
			return nil
		})
	}
	return work.Wait()
}

func (c *Cluster) fakeNode(index int) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("512Gi"),
		corev1.ResourcePods:   resource.MustParse("250"),
	}
	for gpu := range c.FakeGPUs {
		resources[FakeGPUResource(gpu)] = *resource.NewQuantity(int64(c.FakeGPUUnits), resource.DecimalSI)
	}
	name := FakeNodeName(index)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{fakeAnnotation: "fake"},
			Labels: map[string]string{
				fakeLabel:              fakeValue,
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
		Spec: corev1.NodeSpec{
			Taints: []corev1.Taint{{Key: fakeAnnotation, Value: "fake", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}
}
