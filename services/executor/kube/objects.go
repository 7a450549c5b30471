package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// createPod creates a pod, after its claim of devices. If the name is taken, the pod belongs to this attempt or to an
// unknown creator.
func (c *cluster) createPod(ctx context.Context, t podTemplate, rank int, rendezvousIP string) (*corev1.Pod, error) {
	if err := c.applyClaim(ctx, t, rank); err != nil {
		return nil, err
	}
	wanted := t.pod(rank, rendezvousIP)
	pods := c.client.CoreV1().Pods(wanted.Namespace)
	made, err := pods.Create(ctx, wanted, metav1.CreateOptions{FieldManager: manager})
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return nil, fmt.Errorf("create pod %s: %w", wanted.Name, err)
		}
		return made, nil
	}
	found, err := pods.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", wanted.Name, err)
	}
	if found.Annotations[annotationMark] != wanted.Annotations[annotationMark] {
		return nil, fmt.Errorf("create pod %s: %w", wanted.Name, errForeign)
	}
	return found, nil
}

var errForeign = errors.New("it was made by another client")

// applyServices creates the Services of an attempt: for its processes to find each other, and to be reached from
// outside.
func (c *cluster) applyServices(ctx context.Context, t podTemplate) error {
	pods := map[string]string{labelJob: t.key.slug(), labelAttempt: strconv.Itoa(t.Attempt.Number)}
	if len(t.processes) > 1 {
		err := c.applyService(ctx, t, t.key.rendezvous(), applycorev1.ServiceSpec().WithClusterIP(corev1.ClusterIPNone).WithSelector(pods).
			WithPorts(applycorev1.ServicePort().WithName("meet").WithPort(podPort)))
		if err != nil {
			return err
		}
	}
	if len(t.Spec.Ports) == 0 {
		return nil
	}
	pods[labelRank] = strconv.Itoa(t.firstWorker())
	spec := applycorev1.ServiceSpec().WithType(corev1.ServiceTypeNodePort).WithSelector(pods)
	for i, p := range t.Spec.Ports {
		spec.WithPorts(applycorev1.ServicePort().WithName(fmt.Sprintf("port-%d", i)).WithPort(int32(p.ContainerPort)).
			WithTargetPort(intstr.FromInt(p.ContainerPort)).WithNodePort(int32(p.NodePort)))
	}
	return c.applyService(ctx, t, t.key.ports(), spec)
}

// firstWorker returns the rank that the ports of a job lead to.
func (t podTemplate) firstWorker() int {
	return slices.IndexFunc(t.processes, func(p launch.Process) bool { return p.Role == launch.RoleWorker })
}

// ownerReference is the Secret of an attempt, which owns what is made for it.
func (t podTemplate) ownerReference() *applymetav1.OwnerReferenceApplyConfiguration {
	return applymetav1.OwnerReference().WithAPIVersion(t.owner.APIVersion).WithKind(t.owner.Kind).WithName(t.owner.Name).WithUID(t.owner.UID)
}

// applyService creates a Service that the Secret of an attempt owns.
func (c *cluster) applyService(ctx context.Context, t podTemplate, name string, spec *applycorev1.ServiceSpecApplyConfiguration) error {
	service := applycorev1.Service(name, t.key.namespace).WithLabels(t.key.labels(t.Attempt.Generation)).
		WithAnnotations(map[string]string{annotationJob: string(t.Job)}).WithOwnerReferences(t.ownerReference()).WithSpec(spec.WithPublishNotReadyAddresses(true))
	if _, err := c.client.CoreV1().Services(t.key.namespace).Apply(ctx, service, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
		return fmt.Errorf("apply Service %s: %w", name, err)
	}
	return nil
}

// deletePods deletes these very pods, and none that have taken their names since.
func (c *cluster) deletePods(ctx context.Context, pods []*corev1.Pod, graceSeconds *int64) error {
	var errs []error
	for _, p := range pods {
		err := c.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: graceSeconds, Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete pod %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// mayStillRun reports whether a node that is not ready may run the pod. The kubelet ends the pod when it is back;
// until then the scheduler counts its devices as taken. Find finds the pod again.
func (c *cluster) mayStillRun(p *corev1.Pod) bool {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	_, err := c.nodeList.Get(p.Spec.NodeName)
	return err == nil
}

// release removes the finalizer from pods, so that they can be deleted.
func (c *cluster) release(ctx context.Context, pods []*corev1.Pod) error {
	var errs []error
	for _, p := range pods {
		if !slices.Contains(p.Finalizers, finalizer) {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, p.UID, finalizer)
		_, err := c.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("release pod %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}
