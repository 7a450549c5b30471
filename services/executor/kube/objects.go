package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// creator creates and reads objects of one kind.
type creator[T any] interface {
	Create(ctx context.Context, wanted T, o metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
}

// createOnce creates an object that the Secret of an attempt owns, or returns the one that was created before.
func createOnce[T metav1.Object](ctx context.Context, c creator[T], kind string, wanted T) (T, error) {
	made, err := c.Create(ctx, wanted, metav1.CreateOptions{FieldManager: manager})
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return made, fmt.Errorf("create %s %s: %w", kind, wanted.GetName(), err)
		}
		return made, nil
	}
	found, err := c.Get(ctx, wanted.GetName(), metav1.GetOptions{})
	if err != nil {
		return found, fmt.Errorf("read %s %s: %w", kind, wanted.GetName(), err)
	}
	if !slices.Equal(found.GetOwnerReferences(), wanted.GetOwnerReferences()) {
		return found, fmt.Errorf("create %s %s: %w", kind, wanted.GetName(), errForeign)
	}
	return found, nil
}

// createPod creates a pod, after its claim of devices.
func (c *cluster) createPod(ctx context.Context, t podTemplate, rank int, rendezvousIP string) (*corev1.Pod, error) {
	if err := c.createClaim(ctx, t, rank); err != nil {
		return nil, err
	}
	return createOnce(ctx, c.client.CoreV1().Pods(t.key.namespace), "pod", t.pod(rank, rendezvousIP))
}

var errForeign = errors.New("it was made by another client")

// createServices creates the Services of an attempt: for its processes to find each other, and to be reached from
// outside.
func (c *cluster) createServices(ctx context.Context, t podTemplate) error {
	pods := map[string]string{labelJob: t.key.slug(), labelAttempt: strconv.Itoa(t.Attempt.Number)}
	if len(t.processes) > 1 {
		err := c.createService(ctx, t, t.key.rendezvous(), corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: pods, Ports: []corev1.ServicePort{{Name: "meet", Port: podPort}},
		})
		if err != nil {
			return err
		}
	}
	if len(t.Spec.Ports) == 0 {
		return nil
	}
	pods = maps.Clone(pods)
	pods[labelRank] = strconv.Itoa(t.firstWorker())
	spec := corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: pods}
	for i, p := range t.Spec.Ports {
		spec.Ports = append(spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("port-%d", i), Port: int32(p.ContainerPort), TargetPort: intstr.FromInt(p.ContainerPort), NodePort: int32(p.NodePort),
		})
	}
	return c.createService(ctx, t, t.key.ports(), spec)
}

// firstWorker returns the rank that the ports of a job lead to.
func (t podTemplate) firstWorker() int {
	return slices.IndexFunc(t.processes, func(p launch.Process) bool { return p.Role == launch.RoleWorker })
}

// owned is the metadata of an object that the Secret of an attempt owns.
func (t podTemplate) owned(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: t.key.namespace, Labels: t.key.labels(t.Attempt.Generation), Annotations: map[string]string{annotationJob: string(t.Job)},
		OwnerReferences: []metav1.OwnerReference{t.owner},
	}
}

func (c *cluster) createService(ctx context.Context, t podTemplate, name string, spec corev1.ServiceSpec) error {
	spec.PublishNotReadyAddresses = true
	_, err := createOnce(ctx, c.client.CoreV1().Services(t.key.namespace), "Service", &corev1.Service{ObjectMeta: t.owned(name), Spec: spec})
	return err
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
