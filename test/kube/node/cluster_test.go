// Package node tests the node agent on a real kubelet, that of the development cluster.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

const (
	image      = "localhost/switchyard-node-test:dev"
	agentImage = "localhost/switchyard-node-test-agent:dev"
	patience   = 2 * time.Minute
)

// kube is the development cluster, agentBinary the agent's program; both are empty without one.
var (
	kube        *lab.Cluster
	agentBinary string
)

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, func(c *lab.Cluster, binaries string) error {
		kube, agentBinary = c, filepath.Join(binaries, "nodeagent")
		if err := c.Image(context.Background(), image, filepath.Join(binaries, "pod"), "./testdata/pod"); err != nil {
			return err
		}
		return c.Image(context.Background(), agentImage, agentBinary, "../../../services/nodeagent/cmd/nodeagent")
	}))
}

// cluster is the development cluster as one test uses it.
type cluster struct {
	t *testing.T
	// node is the node's address, machine this machine's address for the node and its pods.
	node, machine string
}

func useCluster(t *testing.T) *cluster {
	t.Helper()
	if kube == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	node, machine, err := kube.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t, node, machine}
}

// shortDir returns a folder with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// run runs the devcluster program and returns its output.
func (c *cluster) run(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	out, err := kube.Run(ctx, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.feed("", args...)
}

// feed runs kubectl with a manifest.
func (c *cluster) feed(manifest string, args ...string) string {
	c.t.Helper()
	out, err := c.try(manifest, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *cluster) try(manifest string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), patience) // cleanups use it too
	defer cancel()
	return kube.Feed(ctx, manifest, args...)
}

// pod is the part of a pod that the tests choose.
type pod struct {
	namespace, name string
	units           map[string]int
	env             map[string]string
}

// create creates a pod on the node the way the executor does: through the scheduler, bound to it by affinity.
func (c *cluster) create(p pod) {
	c.t.Helper()
	type object = map[string]any
	units, env := object{}, []object{}
	for resource, n := range p.units {
		units[resource] = n
	}
	for name, value := range p.env {
		env = append(env, object{"name": name, "value": value})
	}
	here := object{"matchFields": []object{{"key": "metadata.name", "operator": "In", "values": []string{lab.Node}}}}
	manifest, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": p.name, "namespace": p.namespace},
		"spec": object{
			"restartPolicy": "Never", "terminationGracePeriodSeconds": 2,
			"affinity": object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{here}}}},
			"containers": []object{{
				"name": "main", "image": image, "imagePullPolicy": "Never", "env": env, "resources": object{"limits": units, "requests": units},
				"securityContext": object{"runAsUser": 1000, "allowPrivilegeEscalation": false},
			}},
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.feed(string(manifest), "create", "-f", "-")
	c.t.Cleanup(func() {
		_, _ = c.try("", "delete", "pod", "--ignore-not-found", "--now", "-n", p.namespace, p.name)
	})
}

// admit creates a pod, and another one as long as the kubelet refuses it: it refuses pods bound before it knows the GPU
// again. The executor does the same.
func (c *cluster) admit(p pod) {
	c.t.Helper()
	c.create(p)
	c.until("pod "+p.name, "admitted", func() string {
		state := c.podState(p.namespace, p.name)
		switch {
		case strings.HasPrefix(state, "Failed"):
			c.delete(p.namespace, p.name)
			c.create(p)
		case strings.HasPrefix(state, "Running"), strings.HasPrefix(state, "Succeeded"):
			return "admitted"
		}
		return state
	})
}

// podState returns the phase, the restarts of containers, and the scheduler's message.
func (c *cluster) podState(namespace, name string) string {
	out, err := c.try("", "get", "pod", "-n", namespace, name, "-o",
		`jsonpath={.status.phase} {.status.containerStatuses[0].restartCount} {.status.conditions[?(@.type=="PodScheduled")].message}`)
	if err != nil {
		return err.Error()
	}
	return out
}

func (c *cluster) delete(namespace, name string) {
	c.t.Helper()
	c.kubectl("delete", "pod", "--now", "-n", namespace, name)
}

// output returns the output of the pod's container.
func (c *cluster) output(name string) string {
	c.t.Helper()
	raw := c.run("exec", "--", "sh", "-c", "cat /var/log/pods/default_"+name+"_*/main/0.log")
	var text strings.Builder
	for line := range strings.Lines(raw) {
		// Time, stream and tag come before the text.
		if parts := strings.SplitN(line, " ", 4); len(parts) == 4 {
			text.WriteString(parts[3])
		}
	}
	return text.String()
}

// units returns the node's capacity of a resource and its allocatable part.
func (c *cluster) units(resource string) string {
	name := strings.ReplaceAll(resource, ".", `\.`)
	out, err := c.try("", "get", "node", lab.Node, "-o",
		fmt.Sprintf(`jsonpath={.status.capacity.%s}/{.status.allocatable.%s}`, name, name))
	if err != nil {
		return err.Error()
	}
	return out
}

// until waits until the result of look begins with want.
func (c *cluster) until(what, want string, look func() string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	got := ""
	if !lab.Await(ctx, func() bool { got = look(); return strings.HasPrefix(got, want) }) {
		c.t.Fatalf("%s: %q, want %q", what, got, want)
	}
}
