package identity

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Namespace is that of the services in the manifests in deploy/k8s. That of the node agents is NAMESPACE-nodes.
const Namespace = "switchyard"

// kubernetesHosts are the names of the servers of the bus: in the cluster, and through a forwarded port.
func (d Deployment) kubernetesHosts() []string {
	service := "bus." + d.namespace() + ".svc"
	return []string{service, "*." + service, "localhost", "127.0.0.1"}
}

func (d Deployment) namespace() string { return cmp.Or(d.Namespace, Namespace) }

// outside are files of processes that stay outside of the cluster: its servers write their accounts themselves, and its
// agents get the keys of their nodes from them (Cluster).
func outside() []string {
	return []string{AccountsName, Agent + "/" + Agent + ".nk", Agent + "/" + rosterName}
}

// kustomize writes a kustomization with a Secret for each process, keys-NAME, from its folder, and the passwords of the
// monitoring. Operator and users are no processes of the cluster, so their files stay outside.
func (k Keys) kustomize(namespace string) error {
	var b strings.Builder
	fmt.Fprint(&b, "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\ngeneratorOptions: {disableNameSuffixHash: true}\nsecretGenerator:\n")
	for _, process := range append(Services(), server) {
		entries, err := os.ReadDir(filepath.Join(string(k), process))
		if err != nil {
			return fmt.Errorf("list the files of %s: %w", process, err)
		}
		var files []string
		for _, e := range entries {
			if file := process + "/" + e.Name(); !slices.Contains(outside(), file) {
				files = append(files, file)
			}
		}
		slices.Sort(files)
		in := namespace
		if process == "nodeagent" {
			in = namespace + "-nodes"
		}
		fmt.Fprintf(&b, "  - {name: keys-%s, namespace: %s, files: [%s]}\n", process, in, strings.Join(files, ", "))
	}
	for _, file := range []string{"grafana/password", "influxdb/password", "influxdb/token"} {
		path := filepath.Join(string(k), file)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			if err := write(path, []byte(rand.Text()), 0o600); err != nil {
				return fmt.Errorf("make a password: %w", err)
			}
		}
	}
	fmt.Fprintf(&b, "  - {name: grafana, namespace: %s, files: [grafana/password]}\n", namespace)
	fmt.Fprintf(&b, "  - {name: influxdb, namespace: %s, files: [influxdb/password, influxdb/token]}\n", namespace)
	return write(filepath.Join(string(k), "kustomization.yaml"), []byte(b.String()), readable)
}
