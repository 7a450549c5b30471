// Package lab is the development cluster (docs/devcluster.md) for the Kubernetes tests. It starts and ends a cluster,
// gives it images and runs commands on it; the tests check the results.
package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Node is the name of the real node.
const Node = "node1"

// Cluster is a Kubernetes on this machine.
type Cluster struct {
	program, dir string
}

// Program returns the devcluster program, empty if the tests have none.
func Program() string { return os.Getenv("DEVCLUSTER") }

// Main runs the tests of a package on one cluster: that of the folder DEVCLUSTER_DIR, which is left as it is, else a
// new one. It calls prepare with it before the first test, and not at all without a devcluster program: tests skip
// then.
func Main(m *testing.M, prepare func(c *Cluster, binaries string) error) int {
	if Program() == "" {
		return m.Run()
	}
	binaries, err := os.MkdirTemp("", "sy") // short: there are sockets in it
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(binaries) }()
	c := &Cluster{Program(), os.Getenv("DEVCLUSTER_DIR")}
	if c.dir == "" {
		c, err = Start(context.Background(), filepath.Join(binaries, "cluster"))
		defer func() { _ = c.Down() }()
	}
	if err == nil {
		err = prepare(c, binaries)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Start starts a cluster in a folder. The caller must end the result even after an error.
func Start(ctx context.Context, dir string, flags ...string) (*Cluster, error) {
	c := &Cluster{Program(), dir}
	_, err := c.Run(ctx, append([]string{"up"}, flags...)...)
	return c, err
}

// Down ends the cluster.
func (c *Cluster) Down() error {
	_, err := c.Run(context.Background(), "down")
	return err
}

// Dir returns the cluster's folder.
func (c *Cluster) Dir() string { return c.dir }

// Private returns where a folder that the node has of its own lies on this machine.
func (c *Cluster) Private(path string) string { return filepath.Join(c.dir, "private", path) }

// Kubeconfig returns the path of the administrator's configuration.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Run runs the devcluster program on the cluster and returns its output.
func (c *Cluster) Run(ctx context.Context, args ...string) (string, error) {
	return output(c.command(ctx, args...))
}

// Exec returns a command in the mounts and the network of the node.
func (c *Cluster) Exec(program string, args ...string) *exec.Cmd {
	return c.command(context.Background(), append([]string{"exec", "--", program}, args...)...)
}

func (c *Cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.program, append([]string{"--dir", c.dir}, args...)...)
}

// Kubectl runs kubectl on the cluster.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.Feed(ctx, "", args...)
}

// Feed runs kubectl with a manifest as its input (-f -).
func (c *Cluster) Feed(ctx context.Context, manifest string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.program, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	cmd.Stdin = strings.NewReader(manifest)
	return output(cmd)
}

// Forward forwards a free port of this machine to one of a pod until ctx ends, and returns its address.
func (c *Cluster) Forward(ctx context.Context, namespace, pod string, port int) (string, error) {
	cmd := exec.CommandContext(ctx, c.program, "kubectl", "-n", namespace, "port-forward", pod, fmt.Sprint(":", port))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", fmt.Errorf("start kubectl port-forward: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:41234 -> 4222
	_, address, _ := strings.Cut(line, "from ")
	address, _, found := strings.Cut(address, " ")
	if err != nil || !found {
		return "", fmt.Errorf("kubectl port-forward says %q: %w\n%s", line, err, said.Bytes())
	}
	return address, nil
}

// Config returns the configuration of an administrator's client.
func (c *Cluster) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.Kubeconfig(), err)
	}
	return config, nil
}

// Addresses returns the node's address, and this machine's address for the node and its pods: the first one of the
// node's network.
func (c *Cluster) Addresses() (node, machine string, err error) {
	config, err := c.Config()
	if err != nil {
		return "", "", err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return "", "", fmt.Errorf("read the address of the API server: %w", err)
	}
	node = server.Hostname()
	return node, node[:strings.LastIndexByte(node, '.')+1] + "1", nil
}

// Image builds the program of a package, static, and an image of it and some files (/in/image=here) on the node.
func (c *Cluster) Image(ctx context.Context, name, binary, pkg string, files ...string) error {
	if err := Build(ctx, binary, pkg); err != nil {
		return err
	}
	args := []string{"image", "build", "--name", name, "--binary", binary}
	for _, f := range files {
		args = append(args, "--file", f)
	}
	_, err := c.Run(ctx, args...)
	return err
}

// Build builds the program of a package, static.
func Build(ctx context.Context, binary, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	_, err := output(cmd)
	return err
}

// Await polls until a condition holds, and returns false if ctx ends first.
func Await(ctx context.Context, holds func() bool) bool {
	for range tick.Every(ctx, 100*time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}

// output runs a command; an error contains its error output.
func output(cmd *exec.Cmd) (string, error) {
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return strings.TrimSpace(out.String()), fmt.Errorf("run %q: %w: %s", cmd.Args, err, trouble.String())
	}
	return strings.TrimSpace(out.String()), nil
}
