package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Stop has the pods of an attempt end: the kubelet asks their processes and kills them after a while. It is called until the end is seen. An attempt without
// pods never gets any.
func (b *Backend) Stop(ctx context.Context, a train.Attempt, _ time.Time) error {
	k := keyOf(a)
	if busy, _ := b.desk.state(k); busy {
		return nil // pods are being made or removed
	}
	pods := b.podsOf(k)
	if len(pods) == 0 {
		var err error
		if pods, err = b.list(ctx, k); err != nil {
			return err
		}
	}
	if len(pods) == 0 && a.Phase == train.PhaseClaimed {
		exit := train.Exit{Forced: true, Signal: "SIGTERM"}
		if a.Ending != nil {
			exit = *a.Ending
		}
		b.refuse(k, exit)
		return nil
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
	if len(pods) > 0 {
		b.desk.begin(k, func(ctx context.Context) error { return b.deletePods(ctx, pods, nil) })
	}
	return nil
}

// deletePods deletes these very pods and none that have taken their names since.
func (b *Backend) deletePods(ctx context.Context, pods []*corev1.Pod, graceSeconds *int64) error {
	var errs []error
	for _, p := range pods {
		err := b.client.CoreV1().Pods(b.options.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: graceSeconds, Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete pod %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Sweep has nothing to kill: an attempt is not lost before its pods have ended.
func (b *Backend) Sweep(context.Context, train.Attempt) (int, error) { return 0, nil }

// Forget removes what was made for an attempt whose end was told. What fails is found again by Find.
func (b *Backend) Forget(_ context.Context, a train.Attempt) error {
	k := keyOf(a)
	b.mu.Lock()
	delete(b.since, k)
	delete(b.refused, k)
	delete(b.resizings, k)
	delete(b.secrets, k)
	b.mu.Unlock()
	b.desk.forget(k)
	b.desk.begin(k, func(ctx context.Context) error {
		err := b.remove(ctx, k)
		if err != nil {
			b.log.Warn("pods of an ended attempt not removed yet", "job", k.job, "attempt", k.number, "error", err)
		}
		return err
	})
	return nil
}

// remove removes the Secret first: from then on no container of the attempt can start, whoever creates a pod. The Secret takes the Services with it.
func (b *Backend) remove(ctx context.Context, k key) error {
	background := metav1.DeletePropagationBackground
	err := b.client.CoreV1().Secrets(b.options.Namespace).Delete(ctx, k.base(), metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s: %w", k.base(), err)
	}
	pods := slices.DeleteFunc(b.podsOf(k), b.mayStillRun)
	if err := b.release(ctx, pods); err != nil {
		return err
	}
	now := int64(0)
	return b.deletePods(ctx, pods, &now)
}

// mayStillRun says that a node which is silent may run the pod. It is left to the kubelet, which ends it when it is back; until then the scheduler counts its
// devices as taken. Find comes back to it.
func (b *Backend) mayStillRun(p *corev1.Pod) bool {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	_, err := b.nodeList.Get(p.Spec.NodeName)
	return err == nil
}

// release takes the finalizer off pods, so that they can go.
func (b *Backend) release(ctx context.Context, pods []*corev1.Pod) error {
	var errs []error
	for _, p := range pods {
		if !slices.Contains(p.Finalizers, finalizer) {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, p.UID, finalizer)
		_, err := b.client.CoreV1().Pods(b.options.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("release pod %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// ForgetAll has nothing left to do: nothing of a job is kept beyond its attempts.
func (b *Backend) ForgetAll(context.Context, train.JobID) error { return nil }

const (
	// settled is how old an object is that counts as left behind: the record of a younger one may be on its way here.
	settled = 30 * time.Second
	// searchAgain is how often Secrets are searched for that no pod speaks of.
	searchAgain = 10 * time.Minute
)

// Find lists the attempts of which there are pods or Secrets.
func (b *Backend) Find(ctx context.Context) ([]launch.Found, error) {
	now := time.Now()
	found := map[key]launch.Phase{}
	for _, o := range b.pods.GetStore().List() {
		p, ok := o.(*corev1.Pod)
		if !ok || now.Sub(p.CreationTimestamp.Time) < settled {
			continue
		}
		if k, ours := keyFrom(p); ours {
			found[k] = launch.Running
		}
	}
	if now.Sub(b.searched) > searchAgain {
		secrets, err := b.client.CoreV1().Secrets(b.options.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, fmt.Errorf("list Secrets: %w", err)
		}
		b.searched = now
		for i := range secrets.Items {
			k, ours := keyFrom(&secrets.Items[i])
			if _, known := found[k]; ours && !known && now.Sub(secrets.Items[i].CreationTimestamp.Time) >= settled {
				found[k] = launch.Exited
			}
		}
	}
	var list []launch.Found
	for _, k := range slices.SortedFunc(maps.Keys(found), compareKeys) {
		list = append(list, launch.Found{Job: k.job, Number: k.number, Phase: found[k]})
	}
	return list, nil
}
