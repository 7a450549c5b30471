// Package node tests the node agent on a real kubelet, that of the development cluster (docs/devcluster.md): with DEVCLUSTER naming the devcluster program it starts a
// cluster of its own, and with KUBECONFIG too it takes the one that runs.
package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	nodeName = "node1"
	image    = "localhost/switchyard-node-test:dev"
	patience = 2 * time.Minute
)

// cluster is the development cluster.
type cluster struct {
	t       *testing.T
	program string
	config  string
	// node is the node's address, machine this machine's as the node and its pods reach it.
	node, machine string
}

func useCluster(t *testing.T) *cluster {
	t.Helper()
	program := os.Getenv("DEVCLUSTER")
	if program == "" {
		t.Skip("DEVCLUSTER does not name the devcluster program: run make e2e-kube")
	}
	c := &cluster{t: t, program: program, config: os.Getenv("KUBECONFIG")}
	if c.config == "" {
		dir := shortDir(t)
		c.config = filepath.Join(dir, "kubeconfig")
		t.Cleanup(func() { c.run("", "down", "--dir", dir) })
		c.run("", "up", "--dir", dir)
	}
	c.findAddresses()
	return c
}

// shortDir is short enough for sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (c *cluster) dir() string { return filepath.Dir(c.config) }

// findAddresses reads where the API server is: on the node, whose network begins with this machine.
func (c *cluster) findAddresses() {
	c.t.Helper()
	text, err := os.ReadFile(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct{ Server string }
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil || len(config.Clusters) == 0 {
		c.t.Fatalf("read %s: %v", c.config, err)
	}
	server, err := url.Parse(config.Clusters[0].Cluster.Server)
	if err != nil {
		c.t.Fatal(err)
	}
	c.node = server.Hostname()
	c.machine = c.node[:strings.LastIndexByte(c.node, '.')] + ".1"
}

// run runs the devcluster program and gives its output.
func (c *cluster) run(stdin string, args ...string) string {
	c.t.Helper()
	out, err := c.try(stdin, args...)
	if err != nil {
		c.t.Fatalf("devcluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) try(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), patience) // cleanups use it too
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.config)
	cmd.Stdin = strings.NewReader(stdin)
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	err := cmd.Run()
	if err != nil {
		return trouble.String(), err
	}
	return out.String(), nil
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.run("", append([]string{"kubectl"}, args...)...)
}

// giveImage makes the tests' image and gives it to the node.
func (c *cluster) giveImage() {
	c.t.Helper()
	binary := filepath.Join(c.t.TempDir(), "pod")
	c.build(binary, "./testdata/pod")
	c.run("", "image", "build", "--dir", c.dir(), "--name", image, "--binary", binary)
}

func (c *cluster) build(binary, target string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "go", "build", "-o", binary, target)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("build %s: %v\n%s", target, err, out)
	}
}

// pod is what of a pod the tests ask for.
type pod struct {
	namespace, name string
	units           map[string]int
	env             map[string]string
}

// create makes a pod on the node the way the executor does: through the scheduler, bound to it by affinity.
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
	here := object{"matchFields": []object{{"key": "metadata.name", "operator": "In", "values": []string{nodeName}}}}
	manifest, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": p.name, "namespace": p.namespace},
		"spec": object{
			"restartPolicy": "Never", "terminationGracePeriodSeconds": 2,
			"affinity": object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{here}}}},
			"containers": []object{{
				"name": "main", "image": image, "imagePullPolicy": "Never", "env": env, "resources": object{"limits": units, "requests": units},
			}},
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.run(string(manifest), "kubectl", "create", "-f", "-")
	c.t.Cleanup(func() {
		_, _ = c.try("", "kubectl", "delete", "pod", "--ignore-not-found", "--now", "-n", p.namespace, p.name)
	})
}

// podState gives the phase, the times that containers were restarted, and what the scheduler says.
func (c *cluster) podState(namespace, name string) string {
	out, err := c.try("", "kubectl", "get", "pod", "-n", namespace, name, "-o",
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

// output is what the container of a pod has written.
func (c *cluster) output(name string) string {
	c.t.Helper()
	raw := c.run("", "exec", "--dir", c.dir(), "--", "sh", "-c", "cat /var/log/pods/default_"+name+"_*/main/0.log")
	var text strings.Builder
	for line := range strings.Lines(raw) {
		// Time, stream and tag come before the text.
		if parts := strings.SplitN(line, " ", 4); len(parts) == 4 {
			text.WriteString(parts[3])
		}
	}
	return text.String()
}

// units gives what the node shows of a resource: in all, and what may be given out.
func (c *cluster) units(resource string) string {
	name := strings.ReplaceAll(resource, ".", `\.`)
	out, err := c.try("", "kubectl", "get", "node", nodeName, "-o", fmt.Sprintf(`jsonpath={.status.capacity.%s}/{.status.allocatable.%s}`, name, name))
	if err != nil {
		return err.Error()
	}
	return out
}

// until waits until look gives something that begins with want.
func (c *cluster) until(what, want string, look func() string) {
	c.t.Helper()
	deadline, tick := time.NewTimer(patience), time.NewTicker(100*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		got := look()
		if strings.HasPrefix(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			c.t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
}
