// Package cluster starts, describes and ends one development cluster: which programs run with which files, addresses
// and namespaces, and what has to go when it ends. It does not contain the programs, which are other names of
// one executable.
package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The programs of a cluster, by the names under which the executable runs them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Proxy             = "kube-proxy"
	Kubelet           = "kubelet"
	Containerd        = "containerd"
	Kwok              = "kwok"
	DNS               = "cluster-dns"
	// NodeHolder keeps the node's namespaces while the programs in them come and go.
	NodeHolder = "node-holder"
)

// NodeName is the name of the node that really runs pods.
const NodeName = "node1"

// Config is what a cluster was started with; it lies beside the cluster, so that every later command finds it.
type Config struct {
	// Index tells the running clusters of one machine apart: it is in their addresses and their link's name.
	Index int `json:"index"`
	// Node says that there is a real node, in namespaces of its own.
	Node bool `json:"node"`
	// FakeNodes is how many nodes kwok plays.
	FakeNodes int `json:"fake_nodes"`
	// FakeGPUs is how many GPUs each of them shows, FakeGPUUnits the units of one.
	FakeGPUs     int `json:"fake_gpus"`
	FakeGPUUnits int `json:"fake_gpu_units"`
	// Address is where the control plane listens.
	Address string `json:"address"`
	Ports   Ports  `json:"ports"`
	// Executable is the program that all programs but containerd and kwok are names of.
	Executable string `json:"executable"`
}

// Ports are where the control plane listens. With a node they are Kubernetes' own, as the node has a network of its
// own.
type Ports struct {
	APIServer         int `json:"api_server"`
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcd_peer"`
	ControllerManager int `json:"controller_manager"`
	Scheduler         int `json:"scheduler"`
	Kwok              int `json:"kwok"`
}

// Cluster is one cluster in its folder.
type Cluster struct {
	Dir string
	Config
}

// ErrNone says that a folder holds no cluster.
var ErrNone = errors.New("no cluster here")

// Load reads the cluster in dir; ErrNone if there is none.
func Load(dir string) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find folder %s: %w", dir, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", dir, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("read cluster: %w", err)
	}
	c := &Cluster{Dir: dir}
	if err := json.Unmarshal(data, &c.Config); err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", dir, err)
	}
	return c, nil
}

// save comes before anything outside the folder is made: what is not written here cannot be found again.
func (c *Cluster) save() error {
	data, err := json.MarshalIndent(c.Config, "", "  ")
	if err != nil {
		return fmt.Errorf("encode cluster: %w", err)
	}
	if err := os.WriteFile(c.path(configFile), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write cluster: %w", err)
	}
	return nil
}

// What lies in a cluster's folder. Down removes these and nothing else.
const (
	configFile     = "cluster.json"
	kubeconfigFile = "kubeconfig"
	pkiDir         = "pki"
	confDir        = "conf"
	etcdDir        = "etcd"
	containerdDir  = "containerd"
	privateDir     = "private"
	logsDir        = "logs"
	runDir         = "run"
	imagesDir      = "images"
)

func contents() []string {
	return []string{runDir, pkiDir, confDir, etcdDir, containerdDir, privateDir, imagesDir, logsDir, kubeconfigFile, configFile}
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.path(kubeconfigFile) }

// ContainerdSocket is where the node's containerd answers.
func (c *Cluster) ContainerdSocket() string { return c.path(containerdDir, "containerd.sock") }

// LogFile is where a program's output goes.
func (c *Cluster) LogFile(program string) string { return c.path(logsDir, program+".log") }

// APIServerURL is where clients find the API server.
func (c *Cluster) APIServerURL() string {
	return fmt.Sprintf("https://%s:%d", c.Address, c.Ports.APIServer)
}

// HostAddress is this machine as the node and its pods reach it.
func (c *Cluster) HostAddress() string { return fmt.Sprintf("10.203.%d.1", c.Index) }

func (c *Cluster) nodeAddress() string { return fmt.Sprintf("10.203.%d.2", c.Index) }

func (c *Cluster) podCIDR() string { return fmt.Sprintf("10.204.%d.0/24", c.Index) }

func (c *Cluster) serviceCIDR() string { return fmt.Sprintf("10.205.%d.0/24", c.Index) }

func (c *Cluster) firstServiceAddress() string { return fmt.Sprintf("10.205.%d.1", c.Index) }

// hostLink and nodeLink are the two ends of the wire between this machine and the node.
func (c *Cluster) hostLink() string { return fmt.Sprintf("swdev%d", c.Index) }

func (c *Cluster) nodeLink() string { return fmt.Sprintf("swdev%dn", c.Index) }

// cgroupName is of the folder, not of the index: an index that a cluster has given up is soon another's, and what is in
// the group is killed.
func (c *Cluster) cgroupName() string {
	sum := sha256.Sum256([]byte(c.Dir))
	return "switchyard-devcluster-" + hex.EncodeToString(sum[:4])
}

// privatePaths are folders that a node's programs, or the product's manifests, insist on wherever they run. The node
// sees folders of its own there, so several clusters and a kubelet of the machine's own do not meet.
func privatePaths() []string {
	return []string{
		"/run/cdi",
		"/run/containerd",
		"/var/lib/cni",
		"/var/lib/kubelet",
		"/var/lib/switchyard",
		"/var/log/containers",
		"/var/log/pods",
	}
}

// private is the folder behind one of privatePaths.
func (c *Cluster) private(path string) string { return c.path(privateDir, path) }
