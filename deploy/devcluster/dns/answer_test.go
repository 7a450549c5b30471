package dns_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"github.com/sourcegraph/conc/pool"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/switchyard-dl/switchyard/deploy/devcluster/dns"
)

func service(name, address string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "jobs"}, Spec: corev1.ServiceSpec{ClusterIP: address}}
}

func slice(service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-1", Namespace: "jobs", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
}

func endpoint(hostname, address string, ready bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Hostname: &hostname, Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
}

func names(t *testing.T) dns.Names {
	t.Helper()
	var many []discoveryv1.Endpoint
	for i := range 100 {
		many = append(many, endpoint(fmt.Sprintf("rank-%d", i), fmt.Sprintf("10.204.1.%d", i), true))
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(
		service("api", "10.205.0.7"), service("gang", corev1.ClusterIPNone), service("empty", corev1.ClusterIPNone), service("many", corev1.ClusterIPNone),
		slice("gang", endpoint("rank-0", "10.204.0.5", true), endpoint("rank-1", "10.204.0.6", true), endpoint("rank-2", "10.204.0.7", false)),
		slice("many", many...),
	), 0)
	found := dns.Names{Services: factory.Core().V1().Services().Lister(), Slices: factory.Discovery().V1().EndpointSlices().Lister()}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return found
}

func TestResolve(t *testing.T) {
	n := names(t)
	for _, c := range []struct {
		name           string
		inside, exists bool
		addresses      string
	}{
		{"api.jobs.svc.cluster.local.", true, true, "[10.205.0.7]"},
		{"API.Jobs.SVC.cluster.local.", true, true, "[10.205.0.7]"},
		{"gang.jobs.svc.cluster.local.", true, true, "[10.204.0.5 10.204.0.6]"},
		{"rank-1.gang.jobs.svc.cluster.local.", true, true, "[10.204.0.6]"},
		{"rank-2.gang.jobs.svc.cluster.local.", true, false, "[]"},
		{"rank-9.gang.jobs.svc.cluster.local.", true, false, "[]"},
		{"empty.jobs.svc.cluster.local.", true, true, "[]"},
		{"rank-0.api.jobs.svc.cluster.local.", true, false, "[]"},
		{"api.other.svc.cluster.local.", true, false, "[]"},
		{"jobs.svc.cluster.local.", true, false, "[]"},
		{"cluster.local.", true, false, "[]"},
		{"notcluster.local.", false, false, "[]"},
		{"example.org.", false, false, "[]"},
	} {
		answer, err := n.Resolve(c.name)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if answer.Inside != c.inside || answer.Exists != c.exists || fmt.Sprint(answer.Addresses) != c.addresses {
			t.Errorf("%s: %+v, want inside %t, exists %t, %s", c.name, answer, c.inside, c.exists, c.addresses)
		}
	}
}

// Go's own resolver, by UDP and by TCP where the answer is too long, is the judge of the wire format.
func TestResolverUnderstands(t *testing.T) {
	n := names(t)
	datagrams, streams := listen(t, n)
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		address := datagrams
		if network == "tcp" {
			address = streams
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	for name, want := range map[string]int{"gang.jobs.svc.cluster.local.": 2, "many.jobs.svc.cluster.local.": 100} {
		addresses, err := resolver.LookupNetIP(t.Context(), "ip4", name)
		if err != nil || len(addresses) != want {
			t.Errorf("%s: %d addresses (%v), want %d", name, len(addresses), err, want)
		}
	}
	if _, err := resolver.LookupNetIP(t.Context(), "ip4", "nobody.jobs.svc.cluster.local."); err == nil {
		t.Error("a name that is not there was found")
	}
}

func listen(t *testing.T, n dns.Names) (datagrams, streams string) {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	servers := pool.New().WithErrors()
	servers.Go(func() error { return n.ServeDatagrams(packets) })
	servers.Go(func() error { return n.ServeStreams(listener) })
	t.Cleanup(func() {
		packets.Close()
		listener.Close()
		if err := servers.Wait(); err != nil {
			t.Error(err)
		}
	})
	return packets.LocalAddr().String(), listener.Addr().String()
}

func FuzzReply(f *testing.F) {
	query := dnsmessage.Message{Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName("gang.jobs.svc.cluster.local."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	packed, err := query.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Add(binary.BigEndian.AppendUint16(nil, 7))
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	n := dns.Names{Services: factory.Core().V1().Services().Lister(), Slices: factory.Discovery().V1().EndpointSlices().Lister()}
	f.Fuzz(func(t *testing.T, query []byte) {
		reply, err := n.Reply(query, 512)
		if err != nil {
			return
		}
		var message dnsmessage.Message
		if err := message.Unpack(reply); err != nil || !message.Response || len(reply) > 512 {
			t.Errorf("reply of %d bytes to %x: %v", len(reply), query, err)
		}
	})
}
