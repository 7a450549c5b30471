package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfigs are the clients with a kubeconfig of their own, by file name below the folder. Only the administrator's
// is for people.
func kubeconfigs() map[string]identity {
	return map[string]identity{
		kubeconfigFile:                       {user: "admin", groups: []string{"system:masters"}},
		programKubeconfig(ControllerManager): {user: "system:kube-controller-manager"},
		programKubeconfig(Scheduler):         {user: "system:kube-scheduler"},
		programKubeconfig(Proxy):             {user: "system:kube-proxy"},
		programKubeconfig(Kubelet):           {user: "system:node:" + NodeName, groups: []string{"system:nodes"}},
		programKubeconfig(Kwok):              {user: "kwok", groups: []string{"system:masters"}},
	}
}

func programKubeconfig(program string) string { return confDir + "/" + program + ".kubeconfig" }

func (c *Cluster) writeKubeconfigs(ca *authority) error {
	for name, who := range kubeconfigs() {
		if err := c.writeKubeconfig(name, ca, who); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig holds the certificates themselves, so that the file can be copied elsewhere.
func (c *Cluster) writeKubeconfig(name string, ca *authority, who identity) error {
	certificate, key, err := ca.sign(clientCertificate(who))
	if err != nil {
		return err
	}
	keyData, err := encodeKey(key)
	if err != nil {
		return err
	}
	config := clientapi.NewConfig()
	config.Clusters["devcluster"] = &clientapi.Cluster{
		Server:                   c.APIServerURL(),
		CertificateAuthorityData: encodeCertificate(ca.certificate.Raw),
	}
	config.AuthInfos[who.user] = &clientapi.AuthInfo{
		ClientCertificateData: encodeCertificate(certificate),
		ClientKeyData:         keyData,
	}
	config.Contexts["devcluster"] = &clientapi.Context{Cluster: "devcluster", AuthInfo: who.user}
	config.CurrentContext = "devcluster"
	if err := clientcmd.WriteToFile(*config, c.path(name)); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", who.user, err)
	}
	return nil
}

// Client is the administrator's client. It does not hold itself back: the fake nodes are many.
func (c *Cluster) Client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 1000, 1000
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}
