package cluster

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed files
var files embed.FS

// configValues is what the files in files/ may name.
type configValues struct {
	ContainerdRoot, ContainerdState, ContainerdSocket string
	PauseImage                                        string
	CNIBinDir, CNIConfDir                             string
	PodCIDR, DNSAddress                               string
	PKI, CgroupName, VolumePlugins                    string
	NodeName, Kubeconfig                              string
}

// writeConfigs writes the programs' configuration files; kubeconfigOf names the program whose kubeconfig a file refers
// to.
func (c *Cluster) writeConfigs() error {
	kubeconfigOf := map[string]string{"kube-scheduler.yaml": Scheduler}
	if c.Node {
		maps.Copy(kubeconfigOf, map[string]string{
			"containerd.toml": "", "cni/pods.conflist": "", "kubelet.yaml": Kubelet, "kube-proxy.yaml": Proxy,
		})
	}
	if c.FakeNodes > 0 {
		kubeconfigOf["kwok.yaml"] = Kwok
	}
	values := configValues{
		ContainerdRoot:   c.path(containerdDir, "root"),
		ContainerdState:  c.path(containerdDir, "state"),
		ContainerdSocket: c.ContainerdSocket(),
		PauseImage:       PauseImage,
		CNIBinDir:        cniBinDir(),
		CNIConfDir:       c.path(confDir, "cni"),
		PodCIDR:          c.podCIDR(),
		DNSAddress:       c.nodeAddress(),
		PKI:              c.path(pkiDir),
		CgroupName:       c.cgroupName(),
		VolumePlugins:    c.path(confDir, "volume-plugins"),
		NodeName:         NodeName,
	}
	for file, program := range kubeconfigOf {
		values.Kubeconfig = c.path(programKubeconfig(program))
		if err := c.writeConfig(file, values); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) writeConfig(file string, values configValues) error {
	parsed, err := template.New("").Delims("<%", "%>").ParseFS(files, "files/*")
	if err != nil {
		return fmt.Errorf("parse configuration files: %w", err)
	}
	var text bytes.Buffer
	if err := parsed.ExecuteTemplate(&text, filepath.Base(file), values); err != nil {
		return fmt.Errorf("fill %s: %w", file, err)
	}
	if err := os.WriteFile(c.path(confDir, file), text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
