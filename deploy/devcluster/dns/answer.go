// Package dns resolves the names of Services inside the development cluster, as the Kubernetes DNS specification has
// them: a Service's address, the addresses behind a headless one, and a pod's own name below a headless one. It answers
// nothing about the world outside.
package dns

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
)

// zone is what every name of the cluster ends with.
const zone = "cluster.local."

// Names answers from what the API server has sent so far.
type Names struct {
	Services corelisters.ServiceLister
	Slices   discoverylisters.EndpointSliceLister
}

// Answer is what is known about a name: whether it is within the zone, whether it exists, and its IPv4 addresses.
type Answer struct {
	Inside, Exists bool
	Addresses      []netip.Addr
}

// Resolve answers for an absolute name in any case: [pod.]service.namespace.svc.cluster.local.
func (n Names) Resolve(name string) (Answer, error) {
	name = strings.ToLower(name)
	if name != zone && !strings.HasSuffix(name, "."+zone) {
		return Answer{}, nil
	}
	answer := Answer{Inside: true}
	rest, ok := strings.CutSuffix(name, ".svc."+zone)
	if !ok {
		return answer, nil
	}
	parts := strings.Split(rest, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return answer, nil
	}
	hostname := ""
	if len(parts) == 3 {
		hostname, parts = parts[0], parts[1:]
	}
	service, err := n.Services.Services(parts[1]).Get(parts[0])
	if apierrors.IsNotFound(err) {
		return answer, nil
	}
	if err != nil {
		return answer, fmt.Errorf("look up service %s: %w", name, err)
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		if address, err := netip.ParseAddr(service.Spec.ClusterIP); err == nil && hostname == "" {
			answer.Exists, answer.Addresses = true, []netip.Addr{address}
		}
		return answer, nil
	}
	return n.headless(service, hostname)
}

// headless gives the addresses behind a Service without one of its own, or those of the pod with that hostname.
func (n Names) headless(service *corev1.Service, hostname string) (Answer, error) {
	answer := Answer{Inside: true, Exists: hostname == ""}
	slices, err := n.Slices.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	if err != nil {
		return answer, fmt.Errorf("look up endpoints of %s: %w", service.Name, err)
	}
	for _, slice := range slices {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			// Unsaid is ready; of pods that are not, only those are that the Service wants published, and they are marked ready.
			if ready := endpoint.Conditions.Ready; ready != nil && !*ready {
				continue
			}
			if hostname != "" && (endpoint.Hostname == nil || *endpoint.Hostname != hostname) {
				continue
			}
			answer.Exists = true
			for _, text := range endpoint.Addresses {
				if address, err := netip.ParseAddr(text); err == nil {
					answer.Addresses = append(answer.Addresses, address)
				}
			}
		}
	}
	return answer, nil
}
