package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// volumes are what a cluster with storage classes makes by itself: one for the bus and one for the saves of jobs.
const volumes = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: switchyard-bus}
spec:
  capacity: {storage: 44Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /var/lib/switchyard/bus}
  claimRef: {namespace: switchyard, name: data-bus-0}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: switchyard-snapshots}
spec:
  capacity: {storage: 100Gi}
  accessModes: [ReadWriteMany]
  hostPath: {path: /var/lib/switchyard/snapshots}
  claimRef: {namespace: switchyard-jobs, name: snapshots}
`

// chartValues are those of a cluster of one node of two cores and two simulated GPUs, whose images were built here.
const chartValues = `
image: {repository: docker.io/switchyard, tag: latest}
replicas: 1
probing: true
dra: true
settings: {SWITCHYARD_POD_IMAGE: docker.io/switchyard/executor:latest, SWITCHYARD_POD_IMAGE_PULL_POLICY: Never}
env: {nodeagent: [{name: SWITCHYARD_SIM_GPUS, value: "2"}]}
`

// TestTheChartIsInstalledUpgradedAndRemoved follows the section "With Helm" of docs/kubernetes.md. A job keeps running
// while an upgrade replaces every service and the agent. After the removal the claim of the bus alone is left, as the
// page says.
func TestTheChartIsInstalledUpgradedAndRemoved(t *testing.T) {
	s := start(t)
	chart, program := os.Getenv("HELM_CHART"), os.Getenv("HELM")
	if chart == "" || program == "" {
		t.Fatal("HELM_CHART names no chart or HELM no helm: make e2e-kube makes both")
	}
	folder := cluster.Private("/var/lib/switchyard/bus")
	s.must(os.MkdirAll(folder, 0o700))
	s.must(os.Chown(folder, 1000, 1000))
	if out, err := cluster.Feed(s.ctx, volumes, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	s.must(os.WriteFile(values, []byte(chartValues), 0o600))
	helm := func(args ...string) string {
		cmd := exec.CommandContext(s.ctx, program, append(args, "--namespace", "switchyard")...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	helm("install", "switchyard", chart, "--create-namespace", "--values", values)
	keys := filepath.Join(t.TempDir(), "keys")
	s.must(identity.Keys(keys).Deploy(identity.Deployment{Kubernetes: true}))
	s.kubectl("apply", "-k", keys)
	s.works(identity.Keys(filepath.Join(keys, identity.Operator)))

	s.submit("through", func(*train.Spec) {})
	s.until("through on both GPUs", func() bool { j := s.job("through"); return len(j.Devices) == 2 && j.EpochsDone > 0 })
	changed := map[string]any{"nodeagent": []map[string]string{{"name": "SWITCHYARD_SIM_GPUS", "value": "2"}, {"name": "SWITCHYARD_LOG_LEVEL", "value": "debug"}}}
	for _, service := range services() {
		changed[service] = []map[string]string{{"name": "SWITCHYARD_LOG_LEVEL", "value": "debug"}}
	}
	text, err := json.Marshal(changed)
	s.must(err)
	helm("upgrade", "switchyard", chart, "--values", values, "--set-json", "env="+string(text))
	s.rolledOut()
	if at := s.job("through"); at.State.Terminal() {
		t.Errorf("the job was %s before the upgrade was over: it shows nothing", at.State)
	}
	s.succeeded("through")

	helm("uninstall", "switchyard", "--wait")
	s.until("the end of the namespaces", func() bool {
		return !strings.Contains(s.kubectl("get", "namespaces", "-o", "name"), "switchyard-")
	})
	for _, kind := range []string{"clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "deviceclasses", "priorityclasses"} {
		if left := s.kubectl("get", kind, "-o", "name"); strings.Contains(left, "switchyard") {
			t.Errorf("helm uninstall leaves %s", left)
		}
	}
	if left := s.kubectl("-n", "switchyard", "get", "all,configmaps,serviceaccounts,roles,rolebindings,networkpolicies", "-o", "name"); strings.Contains(left, "planner") || strings.Contains(left, "bus") {
		t.Errorf("helm uninstall leaves %s", left)
	}
	if claims := s.kubectl("-n", "switchyard", "get", "persistentvolumeclaims", "-o", "name"); !strings.Contains(claims, "data-bus-0") {
		t.Error("the claim of the bus is gone")
	}
}
