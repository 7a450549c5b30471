package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// peer is a pod as policies see it, or an address outside of the cluster if it has no namespace.
type peer struct{ namespace, name, space string }

// service is a pod of the namespace of the services.
func service(name string) peer { return peer{namespace: "switchyard", name: name} }

func (p peer) labels() labels.Set { return labels.Set{"app.kubernetes.io/name": p.name} }

// spaceLabels are those of its namespace.
func (p peer) spaceLabels() labels.Set {
	set := labels.Set{"kubernetes.io/metadata.name": p.namespace}
	if p.space != "" {
		set[p.space] = "true"
	}
	return set
}

// The policies by their semantics, as Kubernetes documents them: the network of the development cluster enforces none.
func TestPoliciesSayWhoReachesWhom(t *testing.T) {
	policies := readPolicies(t, "base/network.yaml", "components/monitoring/influxdb.yaml")
	job, outside := peer{namespace: "switchyard-jobs", name: "job"}, peer{}
	watcher := peer{namespace: "monitoring", name: "prometheus", space: "switchyard.dev/monitoring"}
	for _, test := range []struct {
		from, to peer
		port     int32
		want     bool
	}{
		{service("planner"), service("bus"), 4222, true},
		{service("bus"), service("bus"), 6222, true},
		{service("planner"), service("bus"), 6222, false},
		{service("planner"), service("bus"), 8222, false},
		{service("planner"), service("executor"), 9100, false},
		{service("planner"), outside, 443, false},
		{service("planner"), peer{namespace: "kube-system", name: "dns"}, 53, true},
		{service("executor"), outside, 6443, true},
		{service("admission"), outside, 587, true},
		{service("energy"), service("influxdb"), 8086, true},
		{service("planner"), service("influxdb"), 8086, false},
		{outside, service("bus"), 4222, true}, // a node agent, which shows a certificate
		{outside, service("bus"), 6222, false},
		{outside, service("influxdb"), 8086, false},
		{watcher, service("planner"), 9100, true},
		{watcher, service("bus"), 8222, true},
		{watcher, service("bus"), 6222, false},
		{peer{namespace: "other", name: "pod"}, service("planner"), 9100, false},
		{peer{namespace: "other", name: "bus"}, service("bus"), 6222, false},
		{job, service("bus"), 6222, false},
		{job, service("planner"), 9100, false},
		{job, service("influxdb"), 8086, false},
		{job, job, 29500, true},
		{job, outside, 443, true},
	} {
		if got := reaches(t, policies, test.from, test.to, test.port); got != test.want {
			t.Errorf("%s/%s reaches port %d of %s/%s: %v, want %v", test.from.namespace, test.from.name, test.port, test.to.namespace, test.to.name, got, test.want)
		}
	}
}

func readPolicies(t *testing.T, files ...string) (policies []networking.NetworkPolicy) {
	t.Helper()
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(manifests, file))
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "\n---\n") {
			var p networking.NetworkPolicy
			if err := yaml.Unmarshal([]byte(part), &p); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if p.Kind == "NetworkPolicy" {
				policies = append(policies, p)
			}
		}
	}
	return policies
}

// reaches reports whether the policies of both ends let a connection through. An end that no policy selects lets
// everything through.
func reaches(t *testing.T, policies []networking.NetworkPolicy, from, to peer, port int32) bool {
	t.Helper()
	out, in := true, true
	for _, p := range policies { // what selects an end closes it
		out = out && !applies(t, p, networking.PolicyTypeEgress, from)
		in = in && !applies(t, p, networking.PolicyTypeIngress, to)
	}
	for _, p := range policies { // and rules open it
		for _, r := range p.Spec.Egress {
			out = out || applies(t, p, networking.PolicyTypeEgress, from) && ports(r.Ports, port) && peers(t, p.Namespace, r.To, to)
		}
		for _, r := range p.Spec.Ingress {
			in = in || applies(t, p, networking.PolicyTypeIngress, to) && ports(r.Ports, port) && peers(t, p.Namespace, r.From, from)
		}
	}
	return out && in
}

func applies(t *testing.T, p networking.NetworkPolicy, kind networking.PolicyType, end peer) bool {
	t.Helper()
	for _, k := range p.Spec.PolicyTypes {
		if k == kind && p.Namespace == end.namespace && matches(t, &p.Spec.PodSelector, end.labels()) {
			return true
		}
	}
	return false
}

func ports(list []networking.NetworkPolicyPort, port int32) bool {
	for _, p := range list {
		if p.Port.IntVal == port {
			return true
		}
	}
	return len(list) == 0
}

func peers(t *testing.T, namespace string, list []networking.NetworkPolicyPeer, other peer) bool {
	t.Helper()
	for _, p := range list {
		switch {
		case p.IPBlock != nil && other.namespace == "":
			return true // all blocks here are everything
		case p.IPBlock != nil || other.namespace == "":
		case p.NamespaceSelector == nil && other.namespace != namespace:
		case p.NamespaceSelector != nil && !matches(t, p.NamespaceSelector, other.spaceLabels()):
		case p.PodSelector == nil || matches(t, p.PodSelector, other.labels()):
			return true
		}
	}
	return len(list) == 0
}

func matches(t *testing.T, s *meta.LabelSelector, set labels.Set) bool {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(set)
}
