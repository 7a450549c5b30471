package kube

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// claimOfDevices is the name by which a pod refers to its ResourceClaim.
const claimOfDevices = "devices"

// requests are the requests of a rank's claim: one for each device that is claimed, which names that very device, and
// asks for the job's part of it. A request without a part gets all of the device.
func (t podTemplate) requests(rank int) []resourcev1.DeviceRequest {
	var requests []resourcev1.DeviceRequest
	p := t.processes[rank]
	for i := range p.Devices {
		d := &p.Devices[i]
		if d.Class == "" {
			continue
		}
		exactly := &resourcev1.ExactDeviceRequest{
			DeviceClassName: d.Class, Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: thisVery(d)}}},
		}
		if part := t.Places[p.Place].Memory; part > 0 {
			exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
				"memory": *resource.NewQuantity(int64(part), resource.BinarySI),
			}}
		}
		requests = append(requests, resourcev1.DeviceRequest{Name: fmt.Sprintf("device-%d", i), Exactly: exactly})
	}
	return requests
}

// thisVery is true of one device, whichever driver it has: drivers of GPUs give them the attribute uuid.
func thisVery(d *train.Device) string {
	const uuid = "device.attributes[device.driver].uuid"
	return fmt.Sprintf("has(%s) && %s == %s", uuid, uuid, strconv.Quote(d.UUID))
}

// claiming lets a rank's pod have its claim.
func (t podTemplate) claiming(pod *corev1.Pod, rank int) {
	if len(t.requests(rank)) > 0 {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: claimOfDevices, ResourceClaimName: &pod.Name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: claimOfDevices}}
	}
}

// createClaim creates the claim of a rank's pod, with its name.
func (c *cluster) createClaim(ctx context.Context, t podTemplate, rank int) error {
	requests := t.requests(rank)
	if len(requests) == 0 {
		return nil
	}
	_, err := createOnce(ctx, c.client.ResourceV1().ResourceClaims(t.key.namespace), "ResourceClaim", &resourcev1.ResourceClaim{
		ObjectMeta: t.owned(t.key.pod(rank)), Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	})
	return err
}
