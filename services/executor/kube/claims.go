package kube

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyresourcev1 "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// claimOfDevices is the name by which a pod refers to its ResourceClaim.
const claimOfDevices = "devices"

// requests are the requests of a rank's claim: one for each device that is claimed, which names that very device, and
// asks for the job's part of it. A request without a part gets all of the device.
func (t podTemplate) requests(rank int) []*applyresourcev1.DeviceRequestApplyConfiguration {
	var requests []*applyresourcev1.DeviceRequestApplyConfiguration
	p := t.processes[rank]
	for i := range p.Devices {
		d := &p.Devices[i]
		if d.Class == "" {
			continue
		}
		exactly := applyresourcev1.ExactDeviceRequest().WithDeviceClassName(d.Class).WithSelectors(
			applyresourcev1.DeviceSelector().WithCEL(applyresourcev1.CELDeviceSelector().WithExpression(thisVery(d))))
		if part := t.Places[p.Place].Memory; part > 0 {
			exactly.WithCapacity(applyresourcev1.CapacityRequirements().WithRequests(map[resourcev1.QualifiedName]resource.Quantity{
				"memory": *resource.NewQuantity(int64(part), resource.BinarySI),
			}))
		}
		requests = append(requests, applyresourcev1.DeviceRequest().WithName(fmt.Sprintf("device-%d", i)).WithExactly(exactly))
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

// applyClaim creates the claim of a rank's pod, with its name. The Secret of the attempt owns it.
func (c *cluster) applyClaim(ctx context.Context, t podTemplate, rank int) error {
	requests := t.requests(rank)
	if len(requests) == 0 {
		return nil
	}
	name := t.key.pod(rank)
	claim := applyresourcev1.ResourceClaim(name, t.key.namespace).WithLabels(t.key.labels(t.Attempt.Generation)).
		WithAnnotations(map[string]string{annotationJob: string(t.Job)}).WithOwnerReferences(t.ownerReference()).
		WithSpec(applyresourcev1.ResourceClaimSpec().WithDevices(applyresourcev1.DeviceClaim().WithRequests(requests...)))
	if _, err := c.client.ResourceV1().ResourceClaims(t.key.namespace).Apply(ctx, claim, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
		return fmt.Errorf("apply ResourceClaim %s: %w", name, err)
	}
	return nil
}
