package cluster

import (
	"fmt"
	"net"
	"strconv"
)

// arguments is the command line of one of the cluster's programs.
func (c *Cluster) arguments(program string) []string {
	switch program {
	case Etcd:
		return []string{
			c.Executable, Etcd,
			"--data-dir", c.path(etcdDir),
			"--listen-client-url", c.etcdURL(c.Ports.Etcd),
			"--listen-peer-url", c.etcdURL(c.Ports.EtcdPeer),
		}
	case APIServer:
		return c.apiServerArguments()
	case ControllerManager:
		return c.controllerManagerArguments()
	case Scheduler:
		return []string{
			c.Executable, Scheduler,
			"--config", c.path(confDir, "kube-scheduler.yaml"),
			"--authentication-kubeconfig", c.path(programKubeconfig(Scheduler)),
			"--authorization-kubeconfig", c.path(programKubeconfig(Scheduler)),
			"--bind-address", c.Address,
			"--secure-port", strconv.Itoa(c.Ports.Scheduler),
		}
	case Proxy:
		return []string{c.Executable, Proxy, "--config", c.path(confDir, "kube-proxy.yaml")}
	case DNS:
		// It reads what kube-proxy reads, Services and the endpoints behind them, with the same rights.
		return []string{
			c.Executable, DNS,
			"--kubeconfig", c.path(programKubeconfig(Proxy)),
			"--listen", net.JoinHostPort(c.nodeAddress(), "53"),
		}
	case Containerd:
		return []string{Containerd, "--config", c.path(confDir, "containerd.toml")}
	case Kubelet:
		return []string{
			c.Executable, Kubelet,
			"--config", c.path(confDir, "kubelet.yaml"),
			"--kubeconfig", c.path(programKubeconfig(Kubelet)),
			"--hostname-override", NodeName,
			"--node-ip", c.nodeAddress(),
		}
	case Kwok:
		return c.kwokArguments()
	}
	return nil
}

// etcdURL: etcd is for the API server alone, which runs in the same network.
func (c *Cluster) etcdURL(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

func (c *Cluster) apiServerArguments() []string {
	args := []string{
		c.Executable, APIServer,
		"--etcd-servers", c.etcdURL(c.Ports.Etcd),
		"--bind-address", c.Address,
		"--secure-port", strconv.Itoa(c.Ports.APIServer),
		"--client-ca-file", c.path(pkiDir, "ca.crt"),
		"--tls-cert-file", c.path(pkiDir, "apiserver.crt"),
		"--tls-private-key-file", c.path(pkiDir, "apiserver.key"),
		// No name server knows the node by its name.
		"--kubelet-preferred-address-types", "InternalIP",
		"--kubelet-client-certificate", c.path(pkiDir, "apiserver-kubelet-client.crt"),
		"--kubelet-client-key", c.path(pkiDir, "apiserver-kubelet-client.key"),
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", c.path(pkiDir, "sa.key"),
		"--service-account-signing-key-file", c.path(pkiDir, "sa.key"),
		"--service-cluster-ip-range", c.serviceCIDR(),
		"--authorization-mode", "Node,RBAC",
		"--enable-admission-plugins", "NodeRestriction",
		"--allow-privileged",
	}
	if !c.Node {
		// Nothing runs in pods, and a loopback address is not one to publish.
		args = append(args, "--endpoint-reconciler-type", "none")
	}
	return args
}

func (c *Cluster) controllerManagerArguments() []string {
	kubeconfig := c.path(programKubeconfig(ControllerManager))
	return []string{
		c.Executable, ControllerManager,
		"--kubeconfig", kubeconfig,
		"--authentication-kubeconfig", kubeconfig,
		"--authorization-kubeconfig", kubeconfig,
		"--bind-address", c.Address,
		"--secure-port", strconv.Itoa(c.Ports.ControllerManager),
		"--root-ca-file", c.path(pkiDir, "ca.crt"),
		"--cluster-signing-cert-file", c.path(pkiDir, "ca.crt"),
		"--cluster-signing-key-file", c.path(pkiDir, "ca.key"),
		"--service-account-private-key-file", c.path(pkiDir, "sa.key"),
		"--use-service-account-credentials",
		"--leader-elect=false",
		"--kube-api-qps", "200", "--kube-api-burst", "400",
	}
}
