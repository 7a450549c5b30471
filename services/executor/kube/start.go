package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sourcegraph/conc/pool"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// podsInOneTime is how many pods of one gang are created at the same time.
const podsInOneTime = 8

// Start has the pods of a claimed attempt made that are not there yet.
func (b *Backend) Start(ctx context.Context, s launch.Setting) error {
	o, err := newOrder(s, b.options, b.killAfter)
	if err == nil && o.Spec.Image == "" {
		err = errNoImage
	}
	if err != nil {
		return b.Refuse(ctx, s.Attempt, train.Exit{Code: launch.CannotStart, Message: err.Error()})
	}
	o.owner = b.owner(o.key)
	b.desk.begin(o.key, func(ctx context.Context) error { return b.create(ctx, o) })
	return nil
}

var errNoImage = errors.New("a job on Kubernetes needs an image, and the operator has set none (--pod-image)")

// Starting says whether pods are being made.
func (b *Backend) Starting(job train.JobID, number int) (bool, error) {
	return b.desk.state(key{job, number})
}

// create makes what is missing of an attempt. Of a gang the first pod comes first, since its address is needed for the others.
func (b *Backend) create(ctx context.Context, o order) error {
	there := map[int]*corev1.Pod{}
	for _, p := range b.podsOf(o.key) {
		there[rankOf(p)] = p
	}
	if len(there) == 0 {
		if err := b.applyServices(ctx, o); err != nil {
			return b.orRefused(o, err)
		}
	}
	first := there[0]
	if first == nil {
		var err error
		if first, err = b.createPod(ctx, o, 0, ""); err != nil {
			return b.orRefused(o, err)
		}
	}
	if len(o.processes) == 1 || first.Status.PodIP == "" {
		return nil
	}
	group := pool.New().WithErrors().WithMaxGoroutines(podsInOneTime)
	for rank := 1; rank < len(o.processes); rank++ {
		if there[rank] == nil {
			group.Go(func() error {
				_, err := b.createPod(ctx, o, rank, first.Status.PodIP)
				return err
			})
		}
	}
	return b.orRefused(o, group.Wait())
}

// orRefused takes an answer that will always be the same for the end of the attempt.
func (b *Backend) orRefused(o order, err error) error {
	if err != nil && strings.Contains(err.Error(), "already allocated") {
		return err // a port of the node: that of the attempt before this one goes a moment after its pods
	}
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsRequestEntityTooLargeError(err) {
		return err
	}
	b.refuse(o.key, train.Exit{Code: launch.CannotStart, Message: "Kubernetes refuses it: " + firstLine(err.Error())})
	return nil
}

// createPod creates a pod. A name that is taken belongs to this attempt or to nobody who is known here.
func (b *Backend) createPod(ctx context.Context, o order, rank int, meeting string) (*corev1.Pod, error) {
	wanted := o.pod(rank, meeting)
	pods := b.client.CoreV1().Pods(b.options.Namespace)
	made, err := pods.Create(ctx, wanted, metav1.CreateOptions{FieldManager: manager})
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return nil, fmt.Errorf("create pod %s: %w", wanted.Name, err)
		}
		return made, nil
	}
	there, err := pods.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", wanted.Name, err)
	}
	if there.Annotations[annotationMark] != wanted.Annotations[annotationMark] {
		return nil, fmt.Errorf("create pod %s: %w", wanted.Name, errForeign)
	}
	return there, nil
}

var errForeign = errors.New("a pod of this name was made by somebody else")

// applyServices makes the Services of an attempt: to find each other, and to be reached from outside.
func (b *Backend) applyServices(ctx context.Context, o order) error {
	services := b.client.CoreV1().Services(b.options.Namespace)
	options := metav1.ApplyOptions{FieldManager: manager, Force: true}
	labels := o.key.labels(o.Attempt.Generation)
	pods := map[string]string{labelJob: o.key.slug(), labelAttempt: strconv.Itoa(o.Attempt.Number)}
	if len(o.processes) > 1 {
		service := applycorev1.Service(o.key.rendezvous(), b.options.Namespace).WithLabels(labels).
			WithAnnotations(map[string]string{annotationJob: string(o.Job)}).WithOwnerReferences(o.ownerApply()).
			WithSpec(applycorev1.ServiceSpec().WithClusterIP(corev1.ClusterIPNone).WithPublishNotReadyAddresses(true).WithSelector(pods).
				WithPorts(applycorev1.ServicePort().WithName("meet").WithPort(podPort)))
		if _, err := services.Apply(ctx, service, options); err != nil {
			return fmt.Errorf("apply Service %s: %w", o.key.rendezvous(), err)
		}
	}
	if len(o.Spec.Ports) == 0 {
		return nil
	}
	for rank, p := range o.processes {
		if p.Role == launch.RoleWorker {
			pods[labelRank] = strconv.Itoa(rank)
			break
		}
	}
	spec := applycorev1.ServiceSpec().WithType(corev1.ServiceTypeNodePort).WithSelector(pods).WithPublishNotReadyAddresses(true)
	for i, p := range o.Spec.Ports {
		spec.WithPorts(applycorev1.ServicePort().WithName(fmt.Sprintf("port-%d", i)).WithPort(int32(p.ContainerPort)). //nolint:gosec // a port
																WithTargetPort(intstr.FromInt(p.ContainerPort)).WithNodePort(int32(p.NodePort))) //nolint:gosec // a port
	}
	service := applycorev1.Service(o.key.ports(), b.options.Namespace).WithLabels(labels).
		WithAnnotations(map[string]string{annotationJob: string(o.Job)}).WithOwnerReferences(o.ownerApply()).WithSpec(spec)
	if _, err := services.Apply(ctx, service, options); err != nil {
		return fmt.Errorf("apply Service %s: %w", o.key.ports(), err)
	}
	return nil
}

func (o order) ownerApply() *applymetav1.OwnerReferenceApplyConfiguration {
	return applymetav1.OwnerReference().WithAPIVersion(o.owner.APIVersion).WithKind(o.owner.Kind).WithName(o.owner.Name).WithUID(o.owner.UID)
}

// Refuse records the end of an attempt that cannot be started. Nothing remembers it but this process: the next executor comes to the same end.
func (b *Backend) Refuse(_ context.Context, a train.Attempt, e train.Exit) error {
	b.refuse(keyOf(a), e)
	return nil
}

func (b *Backend) refuse(k key, e train.Exit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[k] = e
}
