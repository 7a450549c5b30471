package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Options say what cluster to start.
type Options struct {
	Dir string
	// Executable is the program that the cluster's programs are names of.
	Executable string
	// Node asks for a real node; without one there are only the control plane and the fake nodes, and no root is needed.
	Node bool
	// FakeNodes, FakeGPUs and FakeGPUUnits: as in Config.
	FakeNodes, FakeGPUs, FakeGPUUnits int
	// Progress gets a line for each thing that Up waits for.
	Progress io.Writer
}

// ErrRunning says that the folder's cluster is running.
var ErrRunning = errors.New("a cluster is running here")

// maxDirLength keeps the sockets below the folder within the 107 bytes that a socket's path may have.
const maxDirLength = 70

// Up starts a cluster and waits until it takes pods. What an earlier cluster left in the folder is removed first. A
// cluster that does not come up is ended, but its logs stay.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("find folder %s: %w", options.Dir, err)
	}
	if len(dir) > maxDirLength {
		return nil, fmt.Errorf("folder %s: at most %d bytes, as it holds sockets", dir, maxDirLength)
	}
	if err := removeOld(dir); err != nil {
		return nil, err
	}
	if err := Prerequisites(options); err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, Config: Config{
		Executable: options.Executable,
		Node:       options.Node,
		FakeNodes:  options.FakeNodes, FakeGPUs: options.FakeGPUs, FakeGPUUnits: options.FakeGPUUnits,
	}}
	if err := c.bringUp(ctx, options.Progress); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (logs: %s)", err, c.path(logsDir)), c.end())
	}
	return c, nil
}

func removeOld(dir string) error {
	old, err := Load(dir)
	if errors.Is(err, ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	if old.Running() {
		return fmt.Errorf("start cluster in %s: %w", dir, ErrRunning)
	}
	return old.Down()
}

func (c *Cluster) bringUp(ctx context.Context, progress io.Writer) error {
	for _, dir := range []string{runDir, pkiDir, filepath.Join(confDir, "cni"), etcdDir, containerdDir, imagesDir, logsDir} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	if err := c.chooseAddresses(); err != nil {
		return err
	}
	if err := c.save(); err != nil {
		return err
	}
	ca, err := c.writeCertificates()
	if err != nil {
		return err
	}
	if err := c.writeKubeconfigs(ca); err != nil {
		return err
	}
	if err := c.writeConfigs(); err != nil {
		return err
	}
	if c.Node {
		if err := c.makeNode(); err != nil {
			return err
		}
	}
	if err := c.startControlPlane(ctx, progress); err != nil {
		return err
	}
	if c.Node {
		if err := c.startNode(ctx, progress); err != nil {
			return err
		}
	}
	return c.startFakeNodes(ctx, progress)
}

// chooseAddresses gives a cluster with a node a network of its own with Kubernetes' usual ports, and one without free
// ports of this machine.
func (c *Cluster) chooseAddresses() error {
	if c.Node {
		if err := c.claimIndex(); err != nil {
			return err
		}
		c.Address = c.nodeAddress()
		c.Ports = Ports{APIServer: 6443, Etcd: 2379, EtcdPeer: 2380, ControllerManager: 10257, Scheduler: 10259, Kwok: 10247}
		return nil
	}
	c.Address = "127.0.0.1"
	c.Index = maxIndex
	ports := []*int{&c.Ports.APIServer, &c.Ports.Etcd, &c.Ports.EtcdPeer, &c.Ports.ControllerManager, &c.Ports.Scheduler, &c.Ports.Kwok}
	free, err := freePorts(len(ports))
	if err != nil {
		return err
	}
	for i, port := range ports {
		*port = free[i]
	}
	return nil
}

// The ports of programs lie below those that the kernel gives to connections, and below those of NodePorts: one of
// these would be taken before its program listens.
const lowestPort, highestPort = 15000, 29999

// freePorts returns different ports on which nobody listens.
func freePorts(number int) ([]int, error) {
	var ports []int
	var last error
	for range 100 * number {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		defer listener.Close() // until all are found
		if ports = append(ports, port); len(ports) == number {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find a free port: %w", last)
}

// startControlPlane starts etcd and the API server, and then what works through it.
func (c *Cluster) startControlPlane(ctx context.Context, progress io.Writer) error {
	if err := c.startPrograms(Etcd, APIServer); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := c.await(ctx, progress, "the API server", time.Minute, apiServerReady(client)); err != nil {
		return err
	}
	if err := c.startPrograms(ControllerManager, Scheduler); err != nil {
		return err
	}
	return c.await(ctx, progress, "the controllers", time.Minute, defaultAccountExists(client))
}

// startNode starts the real node and gives it the image that every pod needs.
func (c *Cluster) startNode(ctx context.Context, progress io.Writer) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := c.startPrograms(Containerd); err != nil {
		return err
	}
	if err := c.await(ctx, progress, "containerd", time.Minute, c.containerdReady); err != nil {
		return err
	}
	if err := c.loadPauseImage(ctx); err != nil {
		return err
	}
	if err := c.startPrograms(Kubelet, Proxy, DNS); err != nil {
		return err
	}
	return c.await(ctx, progress, "node "+NodeName, 2*time.Minute, nodesReady(client, 1))
}

func (c *Cluster) startPrograms(programs ...string) error {
	for _, program := range programs {
		if err := c.start(program, c.arguments(program)); err != nil {
			return err
		}
	}
	return nil
}
