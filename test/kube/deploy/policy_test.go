package deploy

import (
	"cmp"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// peer is a pod as policies see it, or only an address if it has no namespace: outside of the cluster, or a process
// with the network of its node.
type peer struct{ namespace, name, space, label, address string }

// service is a pod of the namespace of the services.
func service(name string) peer { return peer{namespace: "switchyard", name: name} }

func (p peer) labels() labels.Set {
	set := labels.Set{"app.kubernetes.io/name": p.name}
	if p.label != "" {
		set[p.label] = "true"
	}
	return set
}

// ip is the address of the peer. Some networks compare blocks of addresses with those of pods, too.
func (p peer) ip() netip.Addr {
	if p.address == "" {
		return netip.MustParseAddr("10.244.1.7")
	}
	return netip.MustParseAddr(p.address)
}

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
	policies := readPolicies(t, "switchyard", "base/network.yaml", "components/monitoring/influxdb.yaml")
	policies = slices.Concat(policies, readPolicies(t, "switchyard-jobs", "tenant/network.yaml"), readPolicies(t, "team-vision", "tenant/network.yaml"))
	outside, agent, metadata := peer{address: "203.0.113.9"}, peer{address: "10.0.0.5"}, peer{address: "169.254.169.254"}
	job, vision := peer{namespace: "switchyard-jobs", name: "job"}, peer{namespace: "team-vision", name: "job"}
	served := peer{namespace: "team-vision", name: "job", label: "switchyard.dev/ports"}
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
		{agent, service("bus"), 4222, true}, // which shows a certificate
		{agent, service("bus"), 4223, true},
		{service("planner"), service("bus"), 4223, false},
		{job, service("bus"), 4223, false},
		{service("bus"), outside, 6443, true},
		{outside, service("bus"), 6222, false},
		{outside, service("influxdb"), 8086, false},
		{watcher, service("planner"), 9100, true},
		{watcher, service("bus"), 8222, true},
		{watcher, service("bus"), 6222, false},
		{peer{namespace: "other", name: "pod"}, service("planner"), 9100, false},
		{peer{namespace: "other", name: "bus"}, service("bus"), 6222, false},
		{service("web"), outside, 6443, true},
		{peer{namespace: "ingress", name: "proxy", space: "switchyard.dev/people"}, service("web"), 7470, true},
		{peer{namespace: "ingress", name: "proxy", space: "switchyard.dev/people"}, service("web"), 9100, false},
		{peer{namespace: "other", name: "pod"}, service("web"), 7470, false},
		{vision, service("web"), 7470, false},
		{job, service("bus"), 4222, false},
		{job, service("bus"), 6222, false},
		{job, service("planner"), 9100, false},
		{job, service("influxdb"), 8086, false},
		{job, job, 29500, true},
		{job, outside, 443, true},
		{vision, vision, 41234, true},
		{job, vision, 29500, false},
		{vision, job, 29500, false},
		{vision, service("bus"), 4222, false},
		{vision, service("web"), 9100, false},
		{vision, peer{namespace: "kube-system", name: "dns"}, 53, true},
		{vision, peer{namespace: "other", name: "database"}, 5432, false},
		{vision, agent, 7480, true},
		{vision, agent, 10250, false},
		{vision, metadata, 80, false},
		{vision, peer{address: "2001:db8::9"}, 443, true},
		{vision, peer{address: "fd00::5"}, 10250, false},
		{agent, vision, 8000, false},
		{outside, vision, 8000, false},
		{outside, served, 8000, true},
		{agent, served, 8000, true},
	} {
		if got := reaches(t, policies, test.from, test.to, test.port); got != test.want {
			t.Errorf("%+v reaches port %d of %+v: %v, want %v", test.from, test.port, test.to, got, test.want)
		}
	}
}

// readPolicies reads the policies of files, for a namespace if they name none.
func readPolicies(t *testing.T, namespace string, files ...string) (policies []networking.NetworkPolicy) {
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
				p.Namespace = cmp.Or(p.Namespace, namespace)
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
		case p.IPBlock != nil:
			if within(t, p.IPBlock, other.ip()) {
				return true
			}
		case other.namespace == "":
		case p.NamespaceSelector == nil && other.namespace != namespace:
		case p.NamespaceSelector != nil && !matches(t, p.NamespaceSelector, other.spaceLabels()):
		case p.PodSelector == nil || matches(t, p.PodSelector, other.labels()):
			return true
		}
	}
	return len(list) == 0
}

func within(t *testing.T, b *networking.IPBlock, a netip.Addr) bool {
	t.Helper()
	holds := func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			t.Fatal(err)
		}
		return prefix.Contains(a)
	}
	return holds(b.CIDR) && !slices.ContainsFunc(b.Except, holds)
}

func matches(t *testing.T, s *meta.LabelSelector, set labels.Set) bool {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(set)
}
